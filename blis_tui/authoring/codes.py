"""What a code of a diagnostic means, with a mistake that causes it and what is then printed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from blis_tui.authoring.code_examples import EXAMPLES, Example
from blis_tui.errors import BlisError, SpecError, TraceError
from blis_tui.spec.codes import CODES
from blis_tui.spec.diagnostics import render_text
from blis_tui.spec.load import load

if TYPE_CHECKING:
    from blis_tui.spec.diagnostics import Diagnostic

_FILE: Final = "example.blis.yaml"
_WIDTH: Final = 80
_LAYERS: Final = {"0": "YAML syntax", "1": "schema", "2": "meaning"}


class UnknownCodeError(BlisError):
    """No diagnostic has that code."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything there is to say about a code."""

    code: str
    layer: str
    title: str
    cause: str
    remedy: str
    example: str = ""
    """The mistake; empty where no document is known to make it."""
    output: str = ""
    """What it makes a command print."""

    def to_text(self) -> str:
        """For a person."""
        lines = [f"{self.code}: {self.title}  ({self.layer})", ""]
        lines += textwrap.wrap(self.cause, _WIDTH)
        lines += textwrap.wrap(f"Remedy: {self.remedy}", _WIDTH)
        if self.example:
            lines += ["", "For example:", "", textwrap.indent(self.example, "    "), ""]
            lines += ["makes a command print:", "", textwrap.indent(self.output, "    ")]
        return "\n".join(lines) + "\n"


def normal_code(text: str) -> str:
    """A code as it is written: `blis1001` and `1001` are `BLIS1001`, too.

    Raises:
        UnknownCodeError: there is no such code.
    """
    code = text.strip().upper()
    code = f"BLIS{code}" if code.isdecimal() else code
    if code not in CODES:
        near = get_close_matches(code, CODES, n=1, cutoff=0.8)
        hint = f"did you mean `{near[0]}`?" if near else "`blis-tui explain` lists all codes"
        raise UnknownCodeError(f"there is no diagnostic code `{text[:40]}`", help=hint)
    return code


def explain(code: str) -> Explanation:
    """Explain a code, making its example's mistake to see what comes out.

    Raises:
        UnknownCodeError: there is no such code.
    """
    code = normal_code(code)
    info = CODES[code]
    base = Explanation(code, _LAYERS[code[4]], info.title, info.cause, info.remedy)
    example = EXAMPLES.get(code)
    if example is None:
        return base
    return replace(base, example=_shown(example), output=output_of(code, example))


def _shown(example: Example) -> str:
    parts = [example.shown if example.shown is not None else example.wrong or example.whole or ""]
    for name, text in example.files.items():
        parts += [f"# {name}", text]
    return "\n".join(part.strip("\n") for part in parts)


def output_of(code: str, example: Example) -> str:
    """The diagnostics of that code that the example causes; empty when it causes none."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, text in example.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        path = folder / _FILE
        path.write_bytes(example.text.encode(errors="surrogateescape"))
        found = [one for one in _diagnostics(path, example) if one.code == code]
        return render_text(found[:1]).replace(f"{folder}/", "").replace(f"{folder}\\", "")


def _diagnostics(path: Path, example: Example) -> tuple[Diagnostic, ...]:
    from blis_tui.workload.traces import read_trace  # noqa: PLC0415  (one example of many needs it)

    try:
        experiment = load(path, overrides=example.overrides)
        if experiment.workload.trace is not None:
            read_trace(experiment.workload.trace, experiment.plugins)
    except (SpecError, TraceError) as error:
        return error.diagnostics
    return ()


def all_codes() -> str:
    """Every code with its title, a line each."""
    return "".join(f"{code}  {info.title}\n" for code, info in CODES.items())
