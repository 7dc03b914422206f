"""Explains any word from a screen, an error, a report or a document."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import blis_tui.cluster.records
import blis_tui.engine.records
import blis_tui.engine.stopped  # noqa: F401  (registers record kinds)
from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import CODES, suggestion, words_of
from blis_tui.base.errors import BlisError
from blis_tui.base.text import described
from blis_tui.base.units import in_words
from blis_tui.cluster.invariants import CLUSTER_INVARIANTS, INVARIANTS, STATEMENTS, Statement
from blis_tui.engine.records import RECORD_KINDS, Record
from blis_tui.model.plug_ins import FOR_BLIS
from blis_tui.results.lints.table import LINTS, explained
from blis_tui.spec.authoring import explain as keys
from blis_tui.spec.authoring import report_figures
from blis_tui.spec.authoring.explain import explain, normal_code
from blis_tui.spec.authoring.glossary import REPRODUCING_BLIS, WORDS, Word
from blis_tui.spec.authoring.key_tree import DISCRIMINATORS, root
from blis_tui.spec.hints import KEYS as SYNONYMS
from blis_tui.spec.hints import METRICS, STATISTICS, metric_hint, metrics_meant, plain
from blis_tui.spec.metric_names import COSTS
from blis_tui.spec.schema import KINDS
from blis_tui.spec.shipped import SHIPPED, builtin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model.plug_ins import Registry

_WIDTH: Final = 100
_INDEX_WIDTH: Final = 80
_ALIKE: Final = 0.8
_CODE: Final = re.compile(r"(BLIS)?[0-9]+")


class UnknownSubjectError(BlisError):
    """Nothing has that name; the help suggests the closest one."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One meaning of a word, as text and as plain data."""

    text: str
    data: Json


def subjects(word: str, kind: str | None = None, plugins: Registry | None = None) -> list[Subject]:
    """Return all meanings of a word: codes, warnings, invariants, records, terms, keys, values, figures and fields.

    Args:
        word: as found anywhere: ``BLIS1001``, ``overload``, ``preempted``, ``ttft_ms``, ``engine.kv_blocks``,
            ``vllm-v1``, ``kv.hit_rate``, ``queued_us``, ``step.duration_us``.
        kind: search only the keys of that kind of document.
        plugins: plug-ins whose settings are keys, too.

    Raises:
        UnknownSubjectError: nothing has that name.
        UnknownKeyError: it is a path that no key has.
        UnknownCodeError: it is an unknown code.
    """
    word = word.strip()
    if kind is not None:
        return [_key(f"{kind.capitalize()}.{word}", plugins)]
    if _CODE.fullmatch(word.upper()):
        explanation = explain(normal_code(word))
        return [Subject(explanation.to_text(), asdict(explanation))]
    named = [*_named(word.lower())]
    held = [*_held(word), *([] if named else _of_rows(word))]
    taken = keys.values(word, plugins)
    is_path = "." in word and not (held or taken or word.replace(".", "").isdecimal())
    if is_path or word in root("Experiment", plugins).children or word.partition(".")[0] in KINDS:
        named += _at_path(word, plugins)
    if "." not in word and (not named or plain(word) in SYNONYMS):
        held += _searched(word, plugins, taken, alone=not (named or held or taken))
    if not (named or held or taken):
        raise _unknown(word, plugins)
    return [*named, *(Subject(value.to_text(), value.to_dict()) for value in taken), *held]


def _key(path: str, plugins: Registry | None) -> Subject:
    chosen, hits = keys.look_up(path, plugins)
    return Subject(keys.as_text(chosen, hits), keys.as_data(chosen, hits))


def _named(word: str) -> Iterator[Subject]:
    """Iterate over meanings with exactly that name, other than keys and report figures."""
    warning = explained(word)
    if warning is not None:
        yield Subject(warning, {"warning": word, "text": warning})
    for statement in STATEMENTS.values():
        if word in (statement.identifier.lower(), statement.name.lower()):
            yield _invariant(statement)
    kind = word.replace(" ", "-")
    if kind in RECORD_KINDS:
        yield _record(kind, RECORD_KINDS[kind])
    for entry in WORDS:
        if word in (entry.name.lower(), *entry.also):
            yield _term(entry)


def _searched(word: str, plugins: Registry | None, taken: Sequence[keys.Value], *, alone: bool) -> list[Subject]:
    """Return matching keys, except those that take the word as a value; ``alone``: there is no other meaning."""
    known = {path for value in taken for path in value.paths}
    known |= {f"{path}.{name}" for path in known for name in DISCRIMINATORS}
    matches = [(kind, key) for kind, key in keys.search(word, plugins) if not keys.is_among(key.shown(kind), known)]
    if len(matches) > 1:
        return [Subject(keys.as_list(word, matches, alone=alone), keys.as_rows(matches))]
    return [Subject(keys.as_text(kind, [key]), keys.as_data(kind, [key])) for kind, key in matches]


def _held(word: str) -> Iterator[Subject]:
    """Iterate over the figures of reports and studies with that name."""
    figures = report_figures.figures_at(word) or report_figures.figures_at(f"latency.{word}")  # names as in tables
    figures = [*report_figures.figures_at(f"latency.{word}_ms"), *figures]
    elsewhere = STATISTICS.keys() & set(words_of(word)) or (word in METRICS and word not in SYNONYMS)
    if not figures and "." not in word and elsewhere:  # `ttft_p99`, `prefix_cache_hits`
        figures = [figure for meant in metrics_meant(word)[:1] for figure in report_figures.figures_at(meant)]
    if len(figures) > 1:
        text = report_figures.listed(f"{word}: metrics of reports", report_figures.together(figures))
        yield Subject(text, [report_figures.figure_data(figure) for figure in figures])
    else:
        yield from (
            Subject(report_figures.figure_text(figure), report_figures.figure_data(figure)) for figure in figures
        )
    costs = [(name, about) for name, about in COSTS.items() if word in (name, *name.split("."))]
    if len(costs) > 1:
        data: Json = [{"figure": name, "meaning": about} for name, about in costs]
        yield Subject(report_figures.listed(f"{word}: metrics of studies", costs), data)
    else:
        yield from (
            Subject(f"{name}: a metric of studies\n\n{about}\n", {"figure": name, "meaning": about})
            for name, about in costs
        )


def _of_rows(word: str) -> Iterator[Subject]:
    """Iterate over the columns of request files and the fields of records with that name."""
    kind, _, name = word.rpartition(".")
    columns = {field.name: field for field in report_figures.request_columns()} if kind in ("", "requests") else {}
    if name in columns:
        text = report_figures.field_text(columns[name], "a column of request files (`run --requests`)")
        yield Subject(text, report_figures.field_data(columns[name], "column", "requests"))
    yield from _record_fields(kind, name)


def _record_fields(kind: str, name: str) -> Iterator[Subject]:
    """Iterate over the fields of that name, in one kind of record or in all."""
    kinds = [record_kind for record_kind in sorted(RECORD_KINDS) if kind in ("", record_kind)]
    held = [
        (record_kind, field)
        for record_kind in kinds
        for field in _fields_of(RECORD_KINDS[record_kind])
        if field.name == name
    ]
    if len(held) > 1:
        rows = [(f"{record_kind}.{name}", field.meaning) for record_kind, field in held]
        data: Json = [report_figures.field_data(field, "field", record_kind) for record_kind, field in held]
        yield Subject(report_figures.listed(f"{name}: fields of records", rows), data)
        return
    for record_kind, field in held:
        about = field.meaning or f"In the record of an event in which {RECORD_KINDS[record_kind].shown.meaning}."
        text = report_figures.field_text(replace(field, meaning=about), f"a field of `{record_kind}` records")
        yield Subject(text, report_figures.field_data(field, "field", record_kind))


def _fields_of(record: type[Record]) -> tuple[report_figures.Field, ...]:
    """Return the fields of a kind of record, the common ones first."""
    return (*report_figures.part_of(Record).fields, *report_figures.part_of(record).fields)


def _at_path(path: str, plugins: Registry | None) -> list[Subject]:
    """Return the key at that path."""
    try:
        return [_key(path, plugins)]
    except keys.UnknownKeyError as error:
        raise _unknown_figure(path, plugins) or error from None


def _unknown_figure(path: str, plugins: Registry | None) -> BlisError | None:
    """Create the error for a path that no key has; None = it does not look like a figure's or a field's, either."""
    section, _, rest = path.partition(".")
    if section in RECORD_KINDS:
        known = [f"{section}.{field.name}" for field in _fields_of(RECORD_KINDS[section])]
        return UnknownSubjectError(f"`{section}` records have no field `{rest[:60]}`", help=suggestion(path, known))
    known = [
        report_figures.filled(figure.path, path)
        for figure in report_figures.all_figures()
        if figure.path.partition(".")[0] == section
    ]
    is_key = section in root("Experiment", plugins).children
    if not known or (is_key and not get_close_matches(path, known, n=1, cutoff=_ALIKE)):
        return None
    return UnknownSubjectError(f"reports have no metric `{path[:80]}`", help=metric_hint(path, known))


def _record(kind: str, record: type[Record]) -> Subject:
    shown = record.shown
    about = shown.explanation or f"{shown.meaning[:1].upper()}{shown.meaning[1:]}."
    held = [(field.name, field.meaning) for field in _fields_of(record)]
    lines = [f"{kind}: a kind of record ({shown.sign})", "", *textwrap.wrap(about, _WIDTH), ""]
    lines += ["  fields", *described(held), ""]
    lines += textwrap.wrap(
        "It is in the debugger's list of events and in `run --records`, and a breakpoint can name it."
        if not shown.on_demand
        else "On demand: it is in no file, and is emitted only to those who subscribe to it by name.",
        _WIDTH,
    )
    return Subject("\n".join(lines) + "\n", {"record": kind, "meaning": about, "fields": [name for name, _ in held]})


def _invariant(statement: Statement) -> Subject:
    checked = [each.identifier for each in (*INVARIANTS, *CLUSTER_INVARIANTS)]
    how = _HOW_CHECKED if statement.identifier in checked else "The tests of the package check it."
    sentence = f"{statement.sentence[0].upper()}{statement.sentence[1:]}"
    about = f"{sentence}. {how} The identifiers are those of the simulator BLIS."
    text = "\n".join([f"{statement.identifier}: an invariant, {statement.name}", "", *textwrap.wrap(about, _WIDTH)])
    return Subject(
        f"{text}\n", {"invariant": statement.identifier, "name": statement.name, "statement": statement.sentence}
    )


_HOW_CHECKED: Final = (
    "`run --check all` checks it after every event, and every run at its end; where it does not hold, the simulator or"
    " a plug-in has a defect (exit code 1)."
)


def _term(word: Word) -> Subject:
    also = [other for other in word.also if other != word.name.lower()]
    is_list = word.name == REPRODUCING_BLIS
    title = f"{word.name}: a term" + (f"  (also {', '.join(also)})" if also and not is_list else "")
    lines = [title, "", *textwrap.wrap(word.meaning, _WIDTH)]
    if is_list:
        ours = [plugin for plugin in builtin().plugins if plugin.of_blis]
        for plugin in ours:
            about = plugin.summary.removesuffix(FOR_BLIS).rstrip()
            lines += ["", f"{plugin.path}: {plugin.name}", textwrap.indent(textwrap.fill(about, _WIDTH - 2), "  ")]
    text = "\n".join(lines) + "\n"
    return Subject(text, {"term": word.name, "also": [*also], "meaning": word.meaning})


def _unknown(word: str, plugins: Registry | None) -> BlisError:
    known = [*(name for name, _ in names()), *(also for entry in WORDS for also in entry.also)]
    known += [figure.field.name for figure in report_figures.all_figures()]
    known += [field.name for field in report_figures.request_columns()]
    near = get_close_matches(word.lower(), dict.fromkeys(name.lower() for name in known), n=2, cutoff=0.75)
    if near:
        hint = "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
        return UnknownSubjectError(f"nothing is named `{word[:60]}`", help=hint)
    try:
        keys.look_up(word, plugins)
    except keys.UnknownKeyError as error:
        if error.help and "did you mean" in error.help:
            return error
    hint = "`blis-tui explain` lists codes, warnings, records, terms and metrics, `explain --kind experiment` all keys"
    return UnknownSubjectError(f"nothing is named `{word[:60]}`", help=hint)


def names() -> Iterator[tuple[str, str]]:
    """Iterate over every code, warning, record kind, term, plug-in and report figure, each with a line about it."""
    yield from ((code, info.title) for code, info in CODES.items())
    yield from ((lint.name, f"{lint.promise}, or it is a warning") for lint in LINTS)
    yield from ((kind, record.shown.meaning) for kind, record in sorted(RECORD_KINDS.items()))
    yield from ((word.name, _short(word.meaning)) for word in WORDS)
    yield from ((statement.identifier, _short(statement.sentence)) for statement in STATEMENTS.values())
    yield from ((name, _short(f"a value of {in_words(paths)}")) for name, paths in _plug_ins().items())
    yield from ((name, _short(about)) for name, about in report_figures.overview())


def _plug_ins() -> dict[str, list[str]]:
    """Return the built-in plug-ins that documents may name, with the keys that take them."""
    paths: dict[str, list[str]] = {}
    for path, shipped in SHIPPED.items():
        for name in shipped:
            paths.setdefault(name, []).append(path)
    return paths


def _short(text: str) -> str:
    return textwrap.shorten(text, 70, placeholder=" ...")


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of one kind of subject, with a heading."""

    heading: str
    names: tuple[str, ...]

    def to_text(self) -> str:
        """Format the heading, with the names below it."""
        text = ", ".join(self.names)
        indent = "  "
        body = textwrap.fill(
            text,
            _INDEX_WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return f"{self.heading}\n{body}\n"


def _index() -> tuple[_Names, ...]:
    sections = dict.fromkeys(name.partition(".")[0] for name, _ in report_figures.overview())
    return (
        _Names("Errors, by code: what each means, with an example and how to fix it", tuple(CODES)),
        _Names("Warnings about runs: what each checks, and what helps", tuple(lint.name for lint in LINTS)),
        _Names("Kinds of records: when each is written, and its fields", tuple(sorted(RECORD_KINDS))),
        _Names("Terms", tuple(word.name for word in WORDS)),
        _Names("Invariants: what must hold after every event, or of a run", tuple(STATEMENTS)),
        _Names("Policies, step-time models and the like: what each does, and the keys it takes", tuple(_plug_ins())),
        _Names("Sections of reports: what each contains, and its metrics (explained as well)", tuple(sections)),
    )


def everything() -> Subject:
    """Return all subjects: as text an index, as plain data with their meanings."""
    rows: list[Json] = [{"code": code, **asdict(info)} for code, info in CODES.items()]
    rows += [{"warning": lint.name, "makes_sure": lint.promise} for lint in LINTS]
    rows += [{"record": kind, "meaning": record.shown.meaning} for kind, record in sorted(RECORD_KINDS.items())]
    rows += [{"term": word.name, "also": [*word.also], "meaning": word.meaning} for word in WORDS]
    rows += [{"invariant": statement.identifier, "statement": statement.sentence} for statement in STATEMENTS.values()]
    rows += [{"value": name, "of": [*paths]} for name, paths in _plug_ins().items()]
    rows += [{"figure": name, "meaning": about} for name, about in report_figures.overview()]
    about_keys = "Keys of documents: `blis-tui explain --kind experiment` lists them as a tree\n"
    return Subject("\n".join([*(subject.to_text() for subject in _index()), about_keys]), rows)


def all_keys(kind: str, plugins: Registry | None = None) -> Subject:
    """Return the keys of a kind of document, as a tree."""
    walked = [key for key in root(kind, plugins).walk() if key.path]
    return Subject(keys.overview(kind, plugins), keys.as_data(kind, walked))
