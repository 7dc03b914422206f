"""Documents of an older format as documents of the current one.

A new version of the format adds a step here, from the version before it. A step gets the text, so that it can keep
comments, and changes everything but the version itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import SpecError
from blis_tui.spec.diagnostics import about
from blis_tui.spec.loader import parse
from blis_tui.spec.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.spec.source import Document

CURRENT: Final = "blis/v1"


@dataclass(frozen=True, slots=True)
class Step:
    """From one version of the format to the next."""

    before: str
    after: str
    change: Callable[[str], str]


STEPS: Final[tuple[Step, ...]] = ()
"""All steps, oldest first. The first published version is the current one, so there are none yet."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """A text in the current format, and the versions it went through (one = it was current)."""

    text: str
    versions: tuple[str, ...]


def migrate(source: Source, steps: Sequence[Step] = STEPS) -> Migrated:
    """Bring a document to the current format.

    Raises:
        SpecError: the text is not strict YAML, or its ``apiVersion`` is missing or unknown.
    """
    document = parse(source)
    version = document.get("apiVersion")
    text = source.text
    versions = [_known(document, version, steps)]
    for step in steps:
        if step.before == versions[-1]:
            text = _with_version(step.change(text), source, step)
            versions.append(step.after)
    return Migrated(text, tuple(versions))


def _known(document: Document, version: object, steps: Sequence[Step]) -> str:
    known = [*(step.before for step in steps), steps[-1].after if steps else CURRENT]
    if isinstance(version, str) and version in known:
        return version
    listed = ", ".join(f"`{one}`" for one in known)
    if version is None:
        hint = f"add `apiVersion: {known[-1]}`"
        raise SpecError([about(document, (), "BLIS1002", "the document lacks the key `apiVersion`", hint=hint)])
    message = f"unknown version `{str(version)[:40]}`"
    hint = f"this version of blis-tui knows {listed}; a newer document needs a newer blis-tui"
    raise SpecError([about(document, ("apiVersion",), "BLIS1004", message, hint=hint)])


def _with_version(text: str, source: Source, step: Step) -> str:
    """The text with the step's new version in place of the old one."""
    span = parse(Source(source.name, text, source.directory)).place(("apiVersion",)).span
    lines = text.split("\n")
    line = lines[span.line - 1]
    lines[span.line - 1] = line[: span.column - 1] + step.after + line[span.end_column - 1 :]
    return "\n".join(lines)
