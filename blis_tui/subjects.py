"""What a word on a screen, in an error, in a report or in a document means, whichever of these it is from."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import blis_tui.cluster.records
import blis_tui.engine.content_records
import blis_tui.engine.stopped  # noqa: F401  (kinds of records are known once they are imported)
from blis_tui.authoring import explain as keys
from blis_tui.authoring.codes import explain, normal_code
from blis_tui.authoring.tree import root
from blis_tui.authoring.words import WORDS
from blis_tui.classes import dataclass
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.errors import BlisError
from blis_tui.metrics.lints.lints import LINTS, explained
from blis_tui.metrics.stats import Distribution
from blis_tui.spec.codes import CODES
from blis_tui.spec.schema import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.authoring.words import Word
    from blis_tui.engine.records import Record
    from blis_tui.registry import Registry
    from blis_tui.spec.source import Json

_WIDTH: Final = 100
_STATISTICS: Final = tuple(one.name for one in fields(Distribution))
_CODE: Final = re.compile(r"(BLIS)?[0-9]+")


class UnknownSubjectError(BlisError):
    """Nothing is called so; the help names the nearest."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing that a word stands for: for people, and as plain data."""

    text: str
    data: Json


def subjects(word: str, kind: str | None = None, plugins: Registry | None = None) -> list[Subject]:
    """Everything that is called so: a code, a warning, a kind of record, a term, or a key of documents.

    Args:
        word: as it is read somewhere: ``BLIS1001``, ``overload``, ``preempted``, ``ttft_ms``, ``engine.kv_blocks``.
        kind: look only among the keys of that kind of document.
        plugins: whose settings are keys, too.

    Raises:
        UnknownSubjectError: nothing is called so.
        UnknownKeyError: it is a path, and no key has it.
        UnknownCodeError: it is a code, and there is none such.
    """
    word = word.strip()
    if kind is not None:
        return [_key(f"{kind.capitalize()}.{word}", plugins)]
    if _CODE.fullmatch(word.upper()):
        found = explain(normal_code(word))
        return [Subject(found.to_text(), asdict(found))]
    named = [*_named(word.lower())]
    if "." in word or word in root("Experiment", plugins).children or word.partition(".")[0] in KINDS:
        named += _at_path(word, plugins)
    if named:
        return named
    matches = keys.search(word, plugins)
    if len(matches) > 1:
        return [Subject(keys.as_list(word, matches), keys.as_rows(matches))]
    if matches:
        chosen, key = matches[0]
        return [Subject(keys.as_text(chosen, [key]), keys.as_data(chosen, [key]))]
    raise _unknown(word, plugins)


def _key(path: str, plugins: Registry | None) -> Subject:
    chosen, found = keys.look_up(path, plugins)
    return Subject(keys.as_text(chosen, found), keys.as_data(chosen, found))


def _named(word: str) -> Iterator[Subject]:
    """What has exactly that name, other than keys."""
    warning = explained(word)
    if warning is not None:
        yield Subject(warning, {"warning": word, "text": warning})
    kind = word.replace(" ", "-")
    if kind in RECORD_KINDS:
        yield _record(kind, RECORD_KINDS[kind])
    for one in WORDS:
        if word in (one.name.lower(), *one.also):
            yield _term(one)


def _at_path(path: str, plugins: Registry | None) -> list[Subject]:
    """The key there; else the term whose statistic a figure of a report is: ``latency.ttft_ms.p99``."""
    try:
        return [_key(path, plugins)]
    except keys.UnknownKeyError:
        before, _, last = path.lower().rpartition(".")
        name = before.rpartition(".")[2]
        found = [_term(one) for one in WORDS if name in one.also] if last in _STATISTICS else []
        if not found:
            raise
        return found


def _record(kind: str, record: type[Record]) -> Subject:
    shown = record.shown
    about = shown.explanation or f"{shown.meaning[:1].upper()}{shown.meaning[1:]}."
    names = [one.name for one in fields(record)]
    lines = [f"{kind}: a kind of record ({shown.sign})", "", *textwrap.wrap(about, _WIDTH), ""]
    lines += textwrap.wrap(f"Fields: {', '.join(names)}.", _WIDTH)
    lines += textwrap.wrap(
        "It is in the debugger's list of events and in `run --records`, and a breakpoint can name it."
        if not shown.on_demand
        else "On demand: it is in no file; subscribing to it by name brings it.",
        _WIDTH,
    )
    return Subject("\n".join(lines) + "\n", {"record": kind, "meaning": about, "fields": [*names]})


def _term(word: Word) -> Subject:
    also = [one for one in word.also if one != word.name.lower()]
    title = f"{word.name}: a term" + (f"  (also {', '.join(also)})" if also else "")
    text = "\n".join([title, "", *textwrap.wrap(word.meaning, _WIDTH)]) + "\n"
    return Subject(text, {"term": word.name, "also": [*also], "meaning": word.meaning})


def _unknown(word: str, plugins: Registry | None) -> BlisError:
    known = [*(name for name, _ in names()), *(also for one in WORDS for also in one.also)]
    near = get_close_matches(word.lower(), dict.fromkeys(one.lower() for one in known), n=2, cutoff=0.75)
    if near:
        hint = "did you mean " + " or ".join(f"`{one}`" for one in near) + "?"
        return UnknownSubjectError(f"nothing is called `{word[:60]}`", help=hint)
    try:
        keys.look_up(word, plugins)
    except keys.UnknownKeyError as error:
        if error.help and "did you mean" in error.help:
            return error
    hint = "`blis-tui explain` lists codes, warnings, records and terms, `explain --kind experiment` all keys"
    return UnknownSubjectError(f"nothing is called `{word[:60]}`", help=hint)


def names() -> Iterator[tuple[str, str]]:
    """Every code, warning, kind of record and term, each with a line about it."""
    yield from ((code, info.title) for code, info in CODES.items())
    yield from ((one.name, f"{one.promise}, or it is a warning") for one in LINTS)
    yield from ((kind, one.shown.meaning) for kind, one in sorted(RECORD_KINDS.items()))
    yield from ((one.name, textwrap.shorten(one.meaning, 70, placeholder=" ...")) for one in WORDS)


def everything() -> Subject:
    """All of these, a line each."""
    rows: list[Json] = [{"code": code, **asdict(info)} for code, info in CODES.items()]
    rows += [{"warning": one.name, "makes_sure": one.promise} for one in LINTS]
    rows += [{"record": kind, "meaning": one.shown.meaning} for kind, one in sorted(RECORD_KINDS.items())]
    rows += [{"term": one.name, "also": [*one.also], "meaning": one.meaning} for one in WORDS]
    return Subject("".join(f"{name}  {about}\n" for name, about in names()), rows)


def all_keys(kind: str, plugins: Registry | None = None) -> Subject:
    """The keys of a kind of document, as a tree."""
    found = [key for key in root(kind, plugins).walk() if key.path]
    return Subject(keys.overview(kind, plugins), keys.as_data(kind, found))
