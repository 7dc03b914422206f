"""``blis-tui spec``: lists, shows, writes, imports, converts and resolves documents."""

from __future__ import annotations

import shlex
import sys
from codecs import BOM_UTF8
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from blis_tui.base.text import printable
from blis_tui.cli import completion
from blis_tui.cli.help import Command, Group
from blis_tui.cli.options import (
    KINDS,
    FiniteRange,
    format_option,
    known_plugins,
    plugins_option,
    seed_option,
    set_option,
)
from blis_tui.cli.standard_streams import (
    ExitCode,
    print_data,
    print_text,
    read_standard_input,
    read_standard_input_text,
    reported,
    require_no_overwrite,
    tell,
    yaml_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.base.source import Source
    from blis_tui.spec.foreign.reading import Imported
    from blis_tui.spec.foreign.server_commands import Wanted
    from blis_tui.spec.library import LibraryEntry


_FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
_OUTPUT = click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
_NAME = click.option("--name", help="Name of the document [default: from the file].")
_STRICT = click.option("--strict", is_flag=True, help="Exit with 1 if something is lost or approximated.")


@click.group("import", cls=Group)
def import_() -> None:
    """Convert what starts servers, and files of BLIS (in Go), Hugging Face and load generators.

    The result is checked before it is written. Anything that cannot be converted is listed on standard error, each key
    with its location and the reason. The result names no schema for editors: `docs/specs.md` has the line to add.
    """


def _converting(kind: str, home: str, about: str) -> None:
    """Add the command that converts documents of a kind; ``home`` is the module that does it."""

    @import_.command(kind, help=about)
    @_FILE
    @_OUTPUT
    @_NAME
    @_STRICT
    @reported
    def command(file: Path, output: Path | None, name: str | None, strict: bool) -> None:
        importer = import_module(f"blis_tui.spec.foreign.{home}")  # heavy, so only when the command runs
        convert: Callable[..., Imported] = getattr(importer, f"import_{kind.replace('-', '_')}")
        _finish([(output, convert(file, name=name))], strict=strict)


_converting("policy", "blis", "Convert a BLIS policy bundle (what --policy-config reads).")
_converting("workload", "blis", "Convert a BLIS workload specification, version 1 or 2 (what --workload-spec reads).")
_converting("model", "hf_config", "Convert a model's Hugging Face config.json.")
_converting("inference-perf", "inference_perf", "Convert an inference-perf configuration to a workload.")


@import_.command("guidellm")
@_FILE
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="The one of its rates to use, or another rate.")
@_OUTPUT
@_NAME
@_STRICT
@reported
def guidellm(file: Path, rate: float | None, output: Path | None, name: str | None, strict: bool) -> None:
    """Convert a GuideLLM scenario to a workload."""
    from blis_tui.spec.foreign.load_generators import import_guidellm  # noqa: PLC0415

    _finish([(output, import_guidellm(file, name=name, rate=rate))], strict=strict)


_SERVED = (
    click.option("--model", metavar="MODEL", help="The model's document, instead of the id that the command has."),
    click.option("--workload", metavar="LOAD", help="The workload [default: of a benchmark in the script]."),
    click.option("--var", "variables", metavar="NAME=VALUE", multiple=True, help="A variable that is not set there."),
)


def _served(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all imports of servers have."""
    for option in reversed((*_SERVED, _OUTPUT, _NAME, _STRICT)):
        command = option(command)
    return command


def _wanted(hardware: str, variables: Sequence[str], **named: str | None) -> Wanted:
    from blis_tui.spec.foreign.server_commands import Wanted  # noqa: PLC0415

    return Wanted(hardware, named["model"], named["workload"], named["name"], _set(variables))


def _set(variables: Sequence[str]) -> dict[str, str]:
    """Return the variables of ``--var``."""
    pairs = [variable.partition("=") for variable in variables]
    if (wrong := next((name for name, given, _ in pairs if not given or not name), None)) is not None:
        raise click.UsageError(f"--var {wrong}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _given(words: tuple[str, ...]) -> Path | tuple[str, ...]:
    """Return the file that is the only word, or a command, also one in quotes."""
    if len(words) == 1 and len(words[0].split()) > 1 and not Path(words[0]).exists():
        try:
            return tuple(shlex.split(words[0]))
        except ValueError as error:
            raise click.UsageError(f"{words[0]!r}: {str(error).lower()}") from None
    return Path(words[0]) if len(words) == 1 and not words[0].startswith("-") else words


def _serving(engine: str, title: str, command: str) -> None:
    """Add the command that converts what starts a server."""

    @import_.command(engine, help=f"Convert what starts a server of {title} to an experiment: {command}")
    @click.argument("words", metavar="FILE | -- COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
    @click.option("--hardware", metavar="GPU", required=True, help="The GPU, which no command names.")
    @click.option("--service", metavar="LINE", help="The line of the server, of several that are no cluster.")
    @_served
    @reported
    def convert(
        words: tuple[str, ...], output: Path | None, service: str | None, *, strict: bool, **wanted: Any
    ) -> None:
        from blis_tui.spec.foreign import server_commands  # noqa: PLC0415

        done: Callable[..., Imported] = getattr(server_commands, f"import_{engine.replace('-', '_')}")
        _finish([(output, done(_given(words), _wanted(**wanted), service))], strict=strict)


_serving("vllm", "vLLM", "`vllm serve`, also in `docker run`, with `vllm bench serve` as its load.")
_serving("sglang", "SGLang", "`sglang.launch_server`, with `sglang.bench_serving` as its load.")
_serving("tensorrt-llm", "TensorRT-LLM", "`trtllm-serve` with its file of options.")


def _deployed(kind: str, metavar: str, home: str, done: str, about: str) -> None:
    """Add the command that converts files which deploy servers; ``done`` in the module ``home`` does it."""

    @import_.command(kind, help=about)
    @click.argument("files", metavar=metavar, nargs=-1, required=True, type=click.Path(path_type=Path))
    @click.option("--hardware", metavar="GPU", default="", help="The GPU [default: that of the nodes it is for].")
    @click.option("--service", metavar="NAME", help="The server to take, of several that are no cluster.")
    @_served
    @reported
    def convert(
        files: tuple[Path, ...], output: Path | None, service: str | None, *, strict: bool, **wanted: Any
    ) -> None:
        importer = import_module(f"blis_tui.spec.foreign.{home}")  # heavy, so only when the command runs
        convert_: Callable[..., Imported] = getattr(importer, done)
        _finish([(output, convert_(files, _wanted(**wanted), service))], strict=strict)


_deployed(
    "kubernetes",
    "FILE|FOLDER…",
    "manifests",
    "import_kubernetes",
    "Convert Kubernetes manifests that start an engine to an experiment, with autoscalers. A folder is its"
    " kustomization, or all manifests in it. Documents of KServe, Dynamo, AIBrix and LeaderWorkerSet are known, too.",
)
_deployed(
    "compose",
    "FILE",
    "manifests",
    "import_kubernetes",
    "Convert a compose file that starts an engine to an experiment.",
)
_deployed(
    "helm",
    "VALUES…",
    "charts",
    "import_helm",
    "Convert values of a Helm chart to an experiment: of vLLM's production-stack, or of llm-d (its model service, its"
    " scheduler, or both). The configuration of an endpoint picker alone becomes a policy.",
)


@import_.command("load")
@click.argument("words", metavar="FILE | -- COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--var", "variables", metavar="NAME=VALUE", multiple=True, help="A variable that is not set there.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="One of several rates or numbers of users.")
@_OUTPUT
@_NAME
@_STRICT
@reported
def load(
    words: tuple[str, ...],
    variables: tuple[str, ...],
    rate: float | None,
    output: Path | None,
    name: str | None,
    strict: bool,
) -> None:
    """Convert the command of a load generator to a workload.

    Known are `vllm bench serve`, `sglang.bench_serving`, `guidellm benchmark`, `aiperf profile` and `genai-perf
    profile`, alone or in a script.
    """
    from blis_tui.spec.foreign.load_generators import import_load  # noqa: PLC0415

    _finish([(output, import_load(_given(words), _set(variables), name=name, rate=rate))], strict=strict)


@import_.command("servegen")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--span", type=FiniteRange(), nargs=2, metavar="START END", help="Use only this part of the trace, in seconds."
)
@_OUTPUT
@_NAME
@_STRICT
@reported
def servegen(
    folder: Path, span: tuple[float, float] | None, output: Path | None, name: str | None, strict: bool
) -> None:
    """Convert a ServeGen folder (chunk-*-trace.csv, chunk-*-dataset.json) to a workload."""
    from blis_tui.spec.foreign.servegen import import_servegen  # noqa: PLC0415

    _finish([(output, import_servegen(folder, name=name, span_s=span))], strict=strict)


@import_.command("hardware")
@_FILE
@click.option(
    "-o", "--output", metavar="OUT_DIR", type=click.Path(path_type=Path), help="Folder for one file per accelerator."
)
@_STRICT
@reported
def hardware(file: Path, output: Path | None, strict: bool) -> None:
    """Convert a BLIS hardware file to one document per accelerator."""
    from blis_tui.spec.foreign.blis import import_hardware  # noqa: PLC0415

    documents = import_hardware(file)
    if output is None and len(documents) > 1:
        names = ", ".join(document.name for document in documents)
        raise click.UsageError(f"{file} describes several accelerators ({names}): give a folder with -o")
    folder = output or Path()
    _finish(
        [(None if output is None else folder / f"{document.name}.yaml", document) for document in documents],
        strict=strict,
    )


@click.group("export", cls=Group)
def export() -> None:
    """Write what starts the servers of an experiment.

    What it cannot say is in its comments, and on standard error: it is imported again, and what differs is listed.
    """


def _exporting(kind: str, about: str) -> None:
    """Add the command that exports an experiment."""

    @export.command(kind, help=about)
    @click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
    @set_option
    @_OUTPUT
    @_STRICT
    @reported
    def command(source: str, overrides: tuple[str, ...], output: Path | None, strict: bool) -> None:
        from blis_tui.output.result_files import write_text  # noqa: PLC0415
        from blis_tui.spec.foreign.export import export as export_  # noqa: PLC0415

        made = export_(kind, source, overrides)
        if output is None or str(output) == "-":
            print_data(made.text)
        else:
            require_no_overwrite({"-o": str(output)})
            write_text(output, made.text)
        tell("".join(f"not said: {loss}\n" for loss in made.lost), nl=False)
        if strict and made.lost:
            sys.exit(ExitCode.CHECK_FAILED)


_exporting("vllm", "Write commands of vLLM that start an experiment's servers.")
_exporting("sglang", "Write commands of SGLang that start an experiment's servers.")
_exporting("compose", "Write a compose file with an experiment's servers.")
_exporting("kubernetes", "Write Deployments with an experiment's servers, and their autoscaler.")
_exporting("llm-d", "Write values of llm-d's charts: an experiment's servers, and how requests are routed to them.")


def _finish(documents: Sequence[tuple[Path | None, Imported]], *, strict: bool) -> None:
    """Write all documents or none, then list what could not be converted."""
    from blis_tui.output.result_files import atomic_files, reporting_write_errors  # noqa: PLC0415
    from blis_tui.spec.foreign.reading import notes_text  # noqa: PLC0415

    require_no_overwrite({f"-o ({imported.name})": None if path is None else str(path) for path, imported in documents})
    with atomic_files() as files:
        for path, document in documents:
            if path is None or str(path) == "-":
                print_data(document.text)
                continue
            with reporting_write_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            files.text(path).write(document.text)
    # All documents of a file share one list.
    notes = documents[0][1].notes
    tell(notes_text(notes), nl=False)
    if strict and any(note.lossy for note in notes):
        sys.exit(ExitCode.CHECK_FAILED)


@click.command("new", cls=Command)
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("name", required=False)
@click.option("-o", "--output", metavar="FILE", help="File to write; - is standard output.  [default: NAME's file]")
@click.option("--all", "every", is_flag=True, help="Include every key, explained, with its default.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@reported
def new(kind: str, name: str | None, output: str | None, *, every: bool, force: bool) -> None:
    """Write a new document: about twenty lines, or with every key explained.

    KIND is experiment, model, hardware, workload, policy, latency or study. Required keys are filled in, others are
    commented out; the document is valid as it stands. NAME is `my-KIND` by default, and names the file in the working
    directory: NAME.blis.yaml for an experiment, NAME.study.yaml for a study, otherwise NAME.yaml. The file points
    editors to the schema in the nearest `schemas/` folder above it or, if there is none, to the installed one
    (`blis-tui spec schema -o schemas` makes a copy to share).
    """
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.output.result_files import write_text  # noqa: PLC0415
    from blis_tui.spec.authoring.project import file_name, schema_reference, short, template  # noqa: PLC0415

    proper = kind.capitalize()
    name = name if name is not None else f"my-{kind}"
    _check_name(name)
    path = Path(file_name(proper, name) if output is None else output)
    schema, own = schema_reference(proper, Path() if output == "-" else path.parent)
    text = (template if every else short)(proper, name, schema)
    if output == "-":
        print_data(text)
        return
    if path.exists() and not force:
        raise InputError(f"{path} exists already", help="choose another name, or replace it with --force")
    write_text(path, text)
    tell(printable(f"wrote {path}"))
    if not own:
        tell("it uses the installed schema; `blis-tui spec schema -o schemas` makes a copy to share")


def _check_name(name: str) -> None:
    """Raise UsageError for a name that the document's schema would refuse."""
    from blis_tui.spec.reader import is_name  # noqa: PLC0415

    if not is_name(name):
        raise click.UsageError(f"`{name}` is not a valid name: use lower-case letters, digits, `.` and `-`")


@click.command("init", cls=Command)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files that exist already.")
@reported
def init(folder: Path, *, force: bool) -> None:
    """Create a small project in DIR: an experiment, its parts, its golden result, CI.

    The experiment has a workload and a policy of its own. The project also has its result, which `pytest` compares
    with, the schemas with editor settings, and CI configurations for GitHub and GitLab that run on each change and
    comment on it with what has changed. They install the blis-tui that made the project; unless that came from a
    package index, its wheel is in wheels/. Nothing is written if one of the files exists already.
    """
    from blis_tui.output.result_files import check_room, write_tree  # noqa: PLC0415
    from blis_tui.spec.authoring.project import DEMO, NAME, own_wheel, project_files  # noqa: PLC0415  # noqa: PLC0415

    texts = project_files()
    check_room(folder, texts, replace=force)  # before the slow part
    files: dict[str, str | bytes] = {**texts, **_goldens(texts, DEMO)}
    if (wheel := own_wheel()) is not None:
        files[f"wheels/{NAME}"] = wheel
    write_tree(folder, files, replace=force)
    from blis_tui.base.units import plural  # noqa: PLC0415  (most commands of this group do not need it)

    tell(f"wrote {plural(len(files), 'file')} below {folder}; next: blis-tui run {folder / DEMO}, and pytest there")


def _goldens(files: Mapping[str, str], spec: str) -> dict[str, str]:
    """Return the golden files of a project's experiment, so that its first `pytest` has something to compare with."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    from blis_tui.golden.case import cases_of  # noqa: PLC0415
    from blis_tui.golden.golden_store import files_of  # noqa: PLC0415
    from blis_tui.golden.session import GoldenSettings, run_case  # noqa: PLC0415
    from blis_tui.output.result_files import write_tree  # noqa: PLC0415

    with TemporaryDirectory() as name:
        folder, goldens = Path(name), Path(name, "golden")
        write_tree(folder, files, replace=True)
        for case in cases_of(folder / spec):
            target = files_of(case.spec, case.name, folder=goldens, root=folder / "specs")
            run_case(case, target, spec, GoldenSettings(mode="always", checks=()))
        return {f"golden/{path.name}": path.read_text(encoding="utf-8") for path in sorted(goldens.iterdir())}


@click.command("fmt", cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.files)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@reported
def fmt(paths: tuple[str, ...], *, check: bool, diff: bool) -> None:
    """Format documents; comments and values stay as they are.

    Two-space indentation, one space between tokens, no unnecessary quotes, at most one blank line in a row, top-level
    keys in the order of the schema. PATH is a file, a folder (every YAML file below it that is not hidden), or - to
    read standard input and write standard output. A file that cannot be formatted safely is left unchanged, with a
    message.
    """
    from blis_tui.spec.authoring.layout import format_source  # noqa: PLC0415

    def change(source: Source) -> str:
        formatted = format_source(source)
        if formatted.left_alone:
            tell(printable(f"{source.name} was left unchanged: it has {formatted.left_alone}"))
        return formatted.text

    rewrite(paths, change, check=check, diff=diff, done="formatted")


@click.command("trim", cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=completion.files)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if something would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@plugins_option
@reported
def trim(paths: tuple[str, ...], plugins: tuple[str, ...], *, check: bool, diff: bool) -> None:
    """Leave out of documents what equals a default; they mean the same, with the same digest.

    A key is left out if the document and each of its cases are the same without it: defaults, what is inherited
    anyway, numbers that `auto` would be. Comments stay, but for those on lines that go. PATH is a file, a folder or -,
    as for `spec fmt`.
    """
    from blis_tui.spec.authoring.trim import trim as trimmed  # noqa: PLC0415

    known = known_plugins(plugins)

    def change(source: Source) -> str:
        made = trimmed(source, known)
        if made.left_alone:
            tell(printable(f"{source.name} was left unchanged: it has {made.left_alone}"))
        if made.dropped:
            tell(printable(f"{source.name}: without {', '.join(f'`{key}`' for key in made.dropped)}"))
        return made.text

    rewrite(paths, change, check=check, diff=diff, done="trimmed")


def rewrite(
    paths: tuple[str, ...],
    change: Callable[[Source], str],
    *,
    check: bool,
    diff: bool,
    done: str,
    unfinished: Callable[[], bool] = lambda: False,
) -> NoReturn:
    """Replace files by what ``change`` makes of them; an invalid file does not stop the others.

    Args:
        paths: files, folders, or - for standard input to output.
        change: returns the new text; may raise SpecError or InputError.
        check: write nothing; a needed change gives exit code 1.
        diff: write nothing; show what would change.
        done: the message about a changed file.
        unfinished: called at the end: whether something could not be changed that should be, which gives exit code 1.
    """
    from blis_tui.base.errors import InputError, SpecError  # noqa: PLC0415
    from blis_tui.output.result_files import write_text  # noqa: PLC0415

    code, changed = ExitCode.OK, 0
    files: list[str] = []
    for path in paths:
        try:
            files += yaml_files(path)
        except InputError as error:
            tell(f"error: {error}")
            code = ExitCode.IO
    for path in files:
        try:
            source, marked = _read(path)
            text = change(source)
            differs = text != source.text or marked
            if path == "-" and not check and not diff:
                print_data(text)
            elif differs and diff:
                from difflib import unified_diff  # noqa: PLC0415  (only needed here)

                lines = unified_diff(source.text.splitlines(), text.splitlines(), path, path, lineterm="")
                print_text("\n".join(map(printable, lines)))
            elif differs and not check:
                write_text(path, text)
            if differs and check:
                tell(printable(f"{path} would be {done}"))
            elif differs and not diff and path != "-":
                tell(printable(f"{done} {path}"))
            changed += differs
        except SpecError as error:
            tell(f"{error}\n")
            code = max(code, ExitCode.USAGE)
        except (InputError, OSError) as error:
            tell(f"error: {error}")
            code = ExitCode.IO
    if code is ExitCode.OK and ((changed and check) or unfinished()):
        code = ExitCode.CHECK_FAILED
    sys.exit(code)


def _read(path: str) -> tuple[Source, bool]:
    """Return the text, and whether it starts with a byte-order mark."""
    from blis_tui.base.input_files import read_input  # noqa: PLC0415
    from blis_tui.spec.read import MAX_BYTES, decode  # noqa: PLC0415

    if path == "-":
        return decode(read_standard_input(), "<stdin>", Path.cwd()), False
    raw = read_input(path, limit=MAX_BYTES)
    return decode(raw, path, Path(path).parent), raw.startswith(BOM_UTF8)


@click.command("schema", cls=Command)
@click.argument("kind", metavar="[KIND]", type=click.Choice((*KINDS, "common")), required=False)
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=click.Path(path_type=Path), help="Write the schemas to this folder."
)
@reported
def schema(kind: str | None, folder: Path | None) -> None:
    """Print the JSON Schema for a KIND of document, or export all schemas.

    KIND is experiment, model, hardware, workload, policy, latency, study, or common (definitions that the others
    share). With -o DIR, all schemas (or that of KIND and those it refers to) are written to DIR, replacing older
    copies.
    """
    from blis_tui.output.result_files import write_tree  # noqa: PLC0415
    from blis_tui.spec.authoring.project import schema_files, with_references  # noqa: PLC0415

    files = schema_files()
    if folder is not None:
        chosen = files if kind is None else with_references(f"{kind}.schema.json", files)
        write_tree(folder, chosen, replace=True)
        from blis_tui.base.units import plural  # noqa: PLC0415  (most commands of this group do not need it)

        tell(f"wrote {plural(len(chosen), 'schema')} to {folder}")
    elif kind is None:
        raise click.UsageError("give the KIND to print, or export all of them with -o")
    else:
        print_data(files[f"{kind}.schema.json"])


@click.group("spec", cls=Group)
def spec() -> None:
    """Find, write, format and convert documents."""


for _command in (export, fmt, import_, init, new, schema, trim):
    spec.add_command(_command)


@spec.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="List only documents of this kind.")
@format_option("text", "json")
@reported
def list_specs(kind: str | None, output_format: str) -> None:
    """List the documents that can be named: your own in ./specs first, then the shipped ones."""
    from blis_tui.spec.library import description  # noqa: PLC0415  (heavy imports only when the command runs)

    chosen = _entries(kind)
    rows = [(entry, description(entry.path)) for entry in chosen]
    if output_format == "json":
        listed = [
            {"kind": entry.kind, "name": entry.name, "shipped": entry.shipped, "description": about}
            for entry, about in rows
        ]
        print_text(_json(listed), nl=False)
        return
    width = max((len(entry.name) for entry in chosen), default=0)
    for entry, about in rows:
        print_text(f"{entry.kind.lower():<11} {printable(entry.name):<{width}}  {printable(about)}".rstrip())


@spec.command("show")
@click.argument("name", shell_complete=completion.documents)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="The kind to show, if documents of several kinds share the name.",
)
@click.option(
    "--resolved",
    is_flag=True,
    help="Print it resolved, as JSON: references followed, defaults filled in, `auto` computed.",
)
@set_option
@reported
def show(name: str, kind: str | None, overrides: tuple[str, ...], *, resolved: bool) -> None:
    """Print the document NAME (or the file at that path)."""
    from blis_tui.spec.read import read_source  # noqa: PLC0415

    entry = _find(name, kind)
    text = _resolved(entry, overrides) if resolved or overrides else read_source(entry.path).text
    print_data(text)


@spec.command("resolve")
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@set_option
@seed_option
@plugins_option
@format_option(
    "yaml", "json", about="yaml: a document that can be run; json: the document and the origin of each value, as data."
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@reported
def resolve(
    source: str,
    overrides: tuple[str, ...],
    seed: int | None,
    plugins: tuple[str, ...],
    output_format: str,
    output: str | None,
) -> None:
    """Print an experiment with everything it refers to resolved.

    References are followed, defaults filled in, `auto` computed. A comment on each line says where its value comes
    from: file and line, a default, --set, the parent it extends, or computed. The result is a self-contained document
    with the same spec_sha256; it names a trace by its absolute path, or relative to FILE.
    """
    from blis_tui.output.result_files import write_text  # noqa: PLC0415
    from blis_tui.spec.authoring.provenance import compose  # noqa: PLC0415  (heavy imports only when the command runs)

    to_file = output not in (None, "-")
    stdin_text = read_standard_input_text() if source == "-" else None
    composed = compose(
        source,
        overrides=overrides,
        seed=seed,
        stdin_text=stdin_text,
        relative_to=Path(str(output)).parent if to_file else None,
        plugins=known_plugins(plugins),
    )
    text = composed.to_yaml() if output_format == "yaml" else _json(composed.to_data())
    if to_file:
        require_no_overwrite({"-o": output}, composed.files)
        write_text(str(output), text)
    else:
        print_data(text)


def _entries(kind: str | None) -> list[LibraryEntry]:
    """Return the documents that can be named, of one kind or of all."""
    from blis_tui.spec.library import entries  # noqa: PLC0415

    return [entry for entry in entries(Path.cwd()) if kind is None or entry.kind.lower() == kind]


def _find(name: str, kind: str | None) -> LibraryEntry:
    """Return the document; among several kinds prefer the experiment, else the first in the order of ``spec list``."""
    from blis_tui.base.diagnostics import suggestion  # noqa: PLC0415
    from blis_tui.base.errors import InputError  # noqa: PLC0415
    from blis_tui.spec.compose import is_path  # noqa: PLC0415
    from blis_tui.spec.library import LibraryEntry, find_by_id, is_id  # noqa: PLC0415
    from blis_tui.spec.shipped import shipped_specs  # noqa: PLC0415

    if is_id(name) and not Path(name).is_file() and (model := find_by_id(name, Path.cwd())) is not None:
        return LibraryEntry("Model", name, model, shipped=model.is_relative_to(shipped_specs()))
    if is_path(name):
        return LibraryEntry((kind or "").capitalize(), name, Path(name), shipped=False)
    known = _entries(kind)
    matching = [entry for entry in known if entry.name == name]
    if not matching:
        names = {entry.name for entry in known}
        raise InputError(f"there is no {kind or 'document'} named `{name}`", help=suggestion(name, names))
    chosen, *others = matching
    for other in others:
        tell(f"note: this is the {chosen.kind.lower()} `{name}`; --kind {other.kind.lower()} shows the other one")
    return chosen


def _resolved(entry: LibraryEntry, overrides: tuple[str, ...]) -> str:
    from blis_tui.spec.load import load  # noqa: PLC0415
    from blis_tui.spec.validate import validate  # noqa: PLC0415

    if entry.kind == "Experiment" or overrides:
        data: object = load(entry.path, overrides=overrides).document
    else:
        valid = validate(entry.path)
        data = load(entry.path).document if valid.kind == "Experiment" else valid.data
    return _json(data)


def _json(data: object) -> str:
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (not needed for a list)

    return to_json(data)
