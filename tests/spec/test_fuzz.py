"""Mutated specifications: whatever the text, only the two errors that are meant for users may come out."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from blis_tui.base.diagnostics import CODES, Diagnostic, render_text
from blis_tui.base.errors import InputError, SpecError
from blis_tui.spec.load import load
from blis_tui.spec.shipped import shipped_specs
from blis_tui.spec.study.arguments import parse_axis, parse_bound, parse_objective, parse_seeds
from blis_tui.spec.validate import validate
from tests.nightly import every

if TYPE_CHECKING:
    from types import FrameType

TEXTS: Final = tuple(
    path.read_text(encoding="utf-8") for path in sorted((shipped_specs() / "experiments").glob("*.yaml"))
)
BROKEN: Final = tuple(
    path.read_text(encoding="utf-8", errors="replace")
    for path in sorted((Path(__file__).parent / "broken").glob("*.yaml"))
)
STUDIES: Final = tuple(
    path.read_text(encoding="utf-8")
    for path in (
        *sorted((shipped_specs() / "studies").glob("*.yaml")),
        *sorted((Path(__file__).parent / "broken").glob("study-*.yaml")),
    )
)
PIECES: Final = (
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        "-",
        "- ",
        "\n",
        "\n  ",
        "\t",
        "'",
        '"',
        "#",
        " #",
        "&a ",
        "*a",
        "!",
        "!!int ",
        "|",
        ">",
    ),
    *(
        "? ",
        "<<: ",
        "---\n",
        "...",
        "%YAML 1.1\n",
        "null",
        "~",
        "true",
        ".nan",
        ".inf",
        "1e400",
        "-1",
        "0",
        "1e6",
        "0x1F",
    ),
    *(
        "9" * 40,
        "é",
        "日本",
        "\u2028",
        "\x00",
        "\x7f",
        "\ud800",
        "😀",
        "\\",
        "..",
        "/",
        "./x.yaml",
        "extends: quickstart\n",
    ),
    *("kind: empirical", "weights: {}", "trace: {file: x}", "x" * 300),
)


def mutation(random: Random, texts: tuple[str, ...] = TEXTS + BROKEN) -> str:
    """A document with a few pieces lost, put in, repeated or swapped."""
    text = random.choice(texts)
    for _ in range(random.randint(1, 6)):
        start = random.randint(0, len(text))
        kind = random.choice(["delete", "insert", "repeat", "swap-lines"])
        if kind == "delete":
            text = text[:start] + text[start + random.randint(1, 40) :]
        elif kind == "insert":
            text = text[:start] + random.choice(PIECES) + text[start:]
        elif kind == "repeat":
            text = text[:start] + text[start : start + random.randint(1, 80)] * 2 + text[start:]
        else:
            lines = text.splitlines(keepends=True)
            if len(lines) > 1:
                one, two = random.randrange(len(lines)), random.randrange(len(lines))
                lines[one], lines[two] = lines[two], lines[one]
            text = "".join(lines)
    return text


def diagnostics_of(text: str) -> list[Diagnostic]:
    """What loading complains about; any other exception than the two for users escapes and fails the test."""
    try:
        load("-", stdin_text=text)
    except SpecError as error:
        return list(error.diagnostics)
    except InputError:
        pass
    return []


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False).map(mutation))
@example("[" * 100_000)
@example("a: " * 5_000)
@example("&a [*a]")
@example("extends: " + "x" * 10_000)
@example("{")
@example(
    "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: x}\n"
    'model: "a\\0b.yaml"\nhardware: h100\nworkload: chatbot\n'
)
def test_mutated_documents(text: str) -> None:
    diagnostics = diagnostics_of(text)
    render_text(diagnostics).encode()
    assert all(diagnostic.code in CODES for diagnostic in diagnostics)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(["cluster", "instances", "policy", "kind", "workload", "clients", "0", "-1", "x", ""])),
    st.sampled_from(["", "="]),
    st.one_of(st.text(max_size=20), st.sampled_from(PIECES)),
)
def test_arbitrary_overrides(steps: list[str], equals: str, value: str) -> None:
    argument = ".".join(steps) + equals + value
    with contextlib.suppress(SpecError, InputError):
        load("quickstart", overrides=[argument])


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False).map(lambda random: mutation(random, STUDIES)))
def test_mutated_studies(text: str) -> None:
    with contextlib.suppress(SpecError, InputError):
        validate("-", stdin_text=text)


@settings(max_examples=200)
@given(
    st.sampled_from(["cluster.instances=1..8", "a=5..40..5", "a={from: 1, to: 8, count: 3}", "a<=3", "max:a", "1,2"]),
    st.integers(0, 20),
    st.one_of(st.text(max_size=10), st.sampled_from(PIECES)),
)
def test_arbitrary_arguments_of_studies(text: str, at: int, piece: str) -> None:
    for parser in (parse_axis, parse_bound, parse_objective, parse_seeds):
        with contextlib.suppress(SpecError):
            parser(text[:at] + piece + text[at:])


@pytest.mark.slow
@pytest.mark.parametrize("count", every(2, (500, 4000)))
def test_many_mutated_documents_neither_hang_nor_eat_memory(count: int) -> None:
    """In a process of its own: each document within two seconds, all of them within 200 MiB."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.spec.test_fuzz", f"{count}"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout) < 200


def _fuzz(examples: int) -> int:
    """Load so many mutated documents; the process's peak memory in MiB."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("a document took more than two seconds")

    signal.signal(signal.SIGALRM, give_up)

    random = Random(0)  # noqa: S311  (a sequence that is the same every time; Hypothesis's own takes longer than loading)
    for _ in range(examples):
        text = mutation(random)
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        try:
            diagnostics_of(text)
        except BaseException:
            sys.stderr.write(f"{text!r}\n")
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    return _peak_mib()


def _peak_mib() -> int:
    """This program's own peak: what ``getrusage`` tells counts whoever started it, up to its start, as well."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    sys.stdout.write(f"{_fuzz(int(sys.argv[1]))}\n")
