"""``blis-tui observe``: loads a real server with a workload and records it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError, install_command
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import (
    FiniteRange,
    case_option,
    case_overrides,
    format_option,
    grouped,
    known_plugins,
    plugins_option,
    set_option,
)
from blis_tui.cli.signals import ProgressLine, graceful_stop
from blis_tui.cli.standard_streams import ExitCode, print_text, reported, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cli.signals import GracefulStop
    from blis_tui.live.observe.observer import Observer, Plan
    from blis_tui.live.observe.recording_summary import Status
    from blis_tui.live.traffic.opening import Load

_NO_LIMIT: Final = "`{name}` is endless: limit it with --requests or --duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """The load."""

    workload: str | None
    case: str | None
    trace: str | None
    trace_format: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """When sending ends, and when a request times out."""

    requests: int | None
    duration_s: float | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The form of requests."""

    api: str
    dialect: str | None
    model: str
    headers: tuple[str, ...]
    api_key_env: str
    stream: bool
    exact: bool
    text: bool
    vocabulary: int | None
    prompt_seed: str | None
    warm_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """What is recorded besides the answers."""

    scrape_s: float
    log: str | None
    kv_events: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """Sampling of the workload."""

    overrides: tuple[str, ...]
    seed: int | None
    plugins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What is shown during and after the recording."""

    progress: bool | None
    live: bool
    status_lines: bool
    output_format: str


@click.command(cls=Command)
@click.argument("url", metavar="URL")
@grouped(
    "loaded",
    _Loaded,
    click.option(
        "--workload",
        metavar="SPEC",
        shell_complete=completion.files,
        help="Send the requests of this workload or experiment.",
    ),
    case_option,
    click.option(
        "--trace", metavar="FILE", shell_complete=completion.files, help="Send the requests of this recorded trace."
    ),
    click.option("--trace-format", metavar="NAME", help="The trace's `format` [default: detected from the file]."),
)
@click.option("-o", "--output", metavar="FOLDER", required=True, help="Folder to create for the recording.")
@grouped(
    "ends",
    _Ends,
    click.option("--requests", type=click.IntRange(min=1), help="Maximum number of requests to send."),
    click.option(
        "--duration",
        "duration_s",
        type=FiniteRange(min=0, min_open=True),
        help="Maximum time to send for, in seconds.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=FiniteRange(min=0.001),
        default=300.0,
        show_default=True,
        help="Seconds after which a request is abandoned.",
    ),
)
@grouped(
    "sent",
    _Sent,
    click.option(
        "--api",
        type=click.Choice(["completions", "chat"]),
        default="completions",
        show_default=True,
        help="The API endpoint to use.",
    ),
    click.option(
        "--dialect",
        type=click.Choice(["vllm", "openai"]),
        help="Whether to use vLLM's extensions (exact lengths, token ids) [default: detected from the server].",
    ),
    click.option("--model", default="", help="Model to request [default: the server's first]."),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="HTTP header to send with each request; repeatable.",
    ),
    click.option(
        "--api-key-env",
        default="OPENAI_API_KEY",
        show_default=True,
        metavar="VARIABLE",
        help="Environment variable that holds the API key, if one is needed.",
    ),
    click.option("--stream/--no-stream", default=True, help="Whether to stream answers [default: stream]."),
    click.option(
        "--exact-lengths/--free-lengths",
        "exact",
        default=True,
        help="Whether answers have exactly the workload's lengths, or end where the model ends them [default: exact].",
    ),
    click.option("--text", is_flag=True, help="Send prompts as words, not as token ids."),
    click.option(
        "--vocabulary",
        type=click.IntRange(2),
        help="Vocabulary size: token ids are below it [default: the model's, or 256].",
    ),
    click.option(
        "--prompt-seed",
        metavar="TEXT",
        help="Seed for the content of prompts; the same seed gives the same prompts, which hit the prefix cache "
        "[default: a new seed].",
    ),
    click.option(
        "--warm-up",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Number of warm-up requests, sent one after the other beforehand and not recorded.",
    ),
)
@grouped(
    "watched",
    _Watched,
    click.option(
        "--scrape",
        "scrape_s",
        type=FiniteRange(min=0.01),
        default=0.25,
        show_default=True,
        help="Seconds between two scrapes of /metrics.",
    ),
    click.option(
        "--log", metavar="FILE", help="The server's log, to read its steps from (--enable-logging-iteration-details)."
    ),
    click.option(
        "--kv-events",
        metavar="ADDRESS",
        help="Address at which the server publishes KV events, such as tcp://127.0.0.1:5557.",
    ),
)
@grouped(
    "drawn",
    _Drawn,
    set_option,
    click.option(
        "--seed", type=click.IntRange(min=0), help="Generate requests with this seed [default: the experiment's, or 0]."
    ),
    plugins_option,
)
@grouped(
    "shown",
    _Shown,
    click.option(
        "--progress/--no-progress",
        default=None,
        help="Show progress on standard error [default: when it is a terminal].",
    ),
    click.option("--live", is_flag=True, help="Watch the recording live in the terminal."),
    click.option("--status-lines", is_flag=True, hidden=True, help="Progress as lines of JSON, for the live screen."),
    format_option("table", "json", about="Format of the summary: for people or for programs."),
)
@reported
def observe(
    url: str,
    loaded: _Loaded,
    output: str,
    ends: _Ends,
    sent: _Sent,
    watched: _Watched,
    drawn: _Drawn,
    shown: _Shown,
) -> None:
    """Run a workload against the server at URL and record what it does.

    URL is any OpenAI-compatible endpoint. Requests are sent on the workload's own schedule. Every chunk of every answer
    is recorded with its time, together with /metrics and the server's log. Every request gets a row, whatever happened
    to it.

    Exits with 1 if any request has no complete answer, and with 3 if the server cannot be reached at all.
    """
    if loaded.workload is not None and loaded.trace is not None:
        raise click.UsageError("--workload and --trace cannot be combined: each says which requests to send")
    if loaded.workload is None and loaded.trace is None:
        raise click.UsageError("name the requests to send: --workload SPEC or --trace FILE")
    if loaded.case is not None and loaded.workload is None:
        raise click.UsageError("--case selects a case of an experiment: name the experiment with --workload")
    if shown.live:
        _show_live(url)
        return
    try:
        from blis_tui.live.observe.observer import Observer  # noqa: PLC0415  (an extra that may be missing)
    except ImportError:
        raise click.UsageError(f"this needs extra packages: {install_command('observe')}") from None
    from blis_tui.live.observe.recording import Folder  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.live.observe.server_reports import Tail  # noqa: PLC0415

    plan = _plan(url, loaded, ends, sent, watched, drawn)
    tail = None if watched.log is None else Tail(Path(watched.log))
    listener = None
    if watched.kv_events is not None:
        from blis_tui.live.observe.server_reports import KvEvents  # noqa: PLC0415

        listener = KvEvents(watched.kv_events)
    if not output:  # which would be this folder
        raise InputError("cannot write the recording: the folder name is empty", help="-o FOLDER")
    folder = Folder(Path(output))
    line = ProgressLine(shown.progress)
    say = _status_line if shown.status_lines else _shown_on(line)
    observer = Observer(plan, folder, log=tail, kv_events=listener, tell=say)
    with graceful_stop() as stop_signal:
        try:
            complete = _run(observer, stop_signal)
        finally:
            line.clear()
        _finish(folder.path, shown.output_format, complete=complete)


def _plan(url: str, loaded: _Loaded, ends: _Ends, sent: _Sent, watched: _Watched, drawn: _Drawn) -> Plan:
    """Return what to send where, and for how long. Raises UsageError if nothing ends it, or a header has no value."""
    from blis_tui.live.observe.observer import Plan  # noqa: PLC0415
    from blis_tui.live.observe.prompts import RequestForm  # noqa: PLC0415
    from blis_tui.live.observe.sending import Limits  # noqa: PLC0415
    from blis_tui.live.observe.wire import target_of  # noqa: PLC0415
    from blis_tui.live.traffic.opening import Choice, open_load  # noqa: PLC0415
    from blis_tui.workload.source import create_source  # noqa: PLC0415

    target = target_of(url, _headers(sent.headers, os.environ.get(sent.api_key_env)))
    known = known_plugins(drawn.plugins)
    overrides = case_overrides(loaded.workload or "", loaded.case, drawn.overrides, None, known)
    choice = Choice(overrides, drawn.seed, ends.requests, loaded.trace_format, known)
    load = open_load(loaded.workload or loaded.trace or "", choice)
    source = create_source(load.workload, load.seed, load.plugins)
    return Plan(
        target=target,
        address=url,
        source=source,
        total=_total(load, source, ends.requests, ends.duration_s),
        asking=RequestForm(
            api=sent.api,
            dialect=sent.dialect or "",
            model=sent.model,
            stream=sent.stream,
            exact=sent.exact,
            text=sent.text,
            vocabulary=sent.vocabulary or load.vocabulary or 256,
            seed=secrets.token_hex(8) if sent.prompt_seed is None else sent.prompt_seed,
        ),
        limits=Limits(
            timeout_us=round(ends.timeout_s * 1e6),
            duration_us=_duration_us(load, ends.duration_s),
            requests=ends.requests,
        ),
        warm_up=sent.warm_up,
        scrape_s=watched.scrape_s,
        about={"url": url, "workload": load.name, "workload_seed": load.seed, "timeout_s": ends.timeout_s}
        | {"warm_up_requests": sent.warm_up},
    )


def _show_live(url: str) -> None:
    """Run the same command as a subprocess, and show its progress in the terminal interface."""
    from blis_tui.cli.tui import has_terminal  # noqa: PLC0415  (only needed here)
    from blis_tui.tui.app import BlisApp  # noqa: PLC0415
    from blis_tui.tui.observing_start import ObservingStart  # noqa: PLC0415

    if not has_terminal():
        raise click.UsageError("--live needs a terminal: leave it out, or use --progress")
    words = [word for word in sys.argv[1:] if word != "--live"]
    command = (sys.executable, "-m", "blis_tui", *words, "--no-progress", "--status-lines")
    start = ObservingStart(url=url, words=command)
    app = BlisApp(start, survive=True)
    app.show()
    print_text(start.output, nl=False)
    sys.exit(ExitCode.DEFECT if app.return_code else start.code)


def _headers(given: tuple[str, ...], key: str | None) -> dict[str, str]:
    """Return the headers of each request. Raises UsageError if one has no value."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for header in given:
        name, mark, value = header.partition("=")
        if not mark:
            raise click.UsageError(f"--header {header}: not of the form NAME=VALUE")
        headers[name.strip()] = value.strip()
    return headers


def _total(load: Load, source: object, requests: int | None, duration_s: float | None) -> int | None:
    """Return the number of requests to send; None = unknown. Raises UsageError if nothing ends them."""
    from blis_tui.live.traffic.opening import ends  # noqa: PLC0415  (as above)

    workload = load.workload
    known = len(source) if hasattr(source, "__len__") else workload.requests
    if known is None and not ends(workload) and requests is None and duration_s is None and load.horizon_us is None:
        raise click.UsageError(_NO_LIMIT.format(name=load.name))
    if requests is not None:
        return requests if known is None else min(known, requests)
    return known if duration_s is None else None


def _duration_us(load: Load, duration_s: float | None) -> int | None:
    given = [load.horizon_us, None if duration_s is None else round(duration_s * 1e6)]
    return min([limit for limit in given if limit is not None], default=None)


def _shown_on(line: ProgressLine) -> Callable[[Status], None]:
    """Return a function that shows progress on a line of the terminal."""
    from blis_tui.live.observe.recording_summary import status_text  # noqa: PLC0415

    return lambda status: line.show(lambda: status_text(status))


def _status_line(status: Status) -> None:
    tell(json.dumps(asdict(status)))


def _run(observer: Observer, stop_signal: GracefulStop) -> bool:
    """Run the recording; the first signal ends it gracefully, a second one at once."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        stop_signal.tell = lambda: loop.is_closed() or loop.call_soon_threadsafe(observer.stop)
        return await observer.run()

    # No chunk is read during a full garbage collection, which takes 13 ms with all imports, so these are exempt.
    gc.collect()
    gc.freeze()
    return asyncio.run(main())


def _finish(folder: Path, output_format: str, *, complete: bool) -> None:
    """Write the tables and the summary, and exit with the corresponding code."""
    from blis_tui.base.canonical import to_json  # noqa: PLC0415
    from blis_tui.live.observe.recording import (  # noqa: PLC0415
        is_recording,
        read_recording,
        write_tables,
    )
    from blis_tui.live.observe.recording_summary import summarize, summary_document, summary_text, warnings  # noqa: PLC0415

    if not is_recording(folder):
        tell("interrupted before the first request: nothing was recorded")
        sys.exit(ExitCode.INTERRUPTED)
    recording = read_recording(folder)
    write_tables(recording)
    summary = summarize(recording.requests)
    complaints = warnings(summary, recording)
    if output_format == "json":
        print_text(to_json(summary_document(summary, recording, complaints)), nl=False)
    else:
        print_text(summary_text(summary, recording), nl=False)
    for warning in complaints:
        tell(f"warning: {warning}")
    if not complete:
        sys.exit(ExitCode.INTERRUPTED)
    if summary.failed:
        sys.exit(ExitCode.CHECK_FAILED)
