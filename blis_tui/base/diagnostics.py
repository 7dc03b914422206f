"""Diagnostics and their stable codes: what is wrong with a document, where, and how to fix it.

The stable codes of diagnostics: the meaning of each, why it is an error, and how to fix it.

``BLIS0xxx`` is YAML syntax, ``BLIS1xxx`` the schema, ``BLIS2xxx`` semantics. A code is never reused.

Misspelt names are told with the known name that is probably meant.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.source import DataPath, Document, Location, dotted
from blis_tui.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """The explanation of a code in ``explain`` and the documentation."""

    title: str
    cause: str
    remedy: str


_TABLE: Final = {
    "BLIS0001": CodeInfo(
        "not valid YAML",
        "The text breaks YAML's grammar: an unclosed quote or bracket, a tab as indentation, a stray colon.",
        "Look at the marked character and the line above it; quote text that contains `: ` or ` #`.",
    ),
    "BLIS0002": CodeInfo(
        "duplicate key",
        "A map contains the same key twice. Most YAML readers silently keep the last one.",
        "Remove one of the two.",
    ),
    "BLIS0003": CodeInfo(
        "key is not text",
        "A key is a number, a truth value, null, a list or a map. Keys of these documents are text.",
        "Quote the key.",
    ),
    "BLIS0004": CodeInfo(
        "not a finite number",
        "NaN and infinities (also numbers too large for a double) have no meaning in a simulation.",
        "Use `none` or leave the key out where a limit should be off.",
    ),
    "BLIS0005": CodeInfo(
        "merge key",
        "`<<` is a YAML 1.1 extension that hides where a value comes from.",
        "Repeat the keys, or inherit a whole experiment with `extends`.",
    ),
    "BLIS0006": CodeInfo(
        "more than one document",
        "The file contains a second YAML document after `---`.",
        "Put each document into a file of its own.",
    ),
    "BLIS0007": CodeInfo(
        "empty document", "The file contains nothing but comments or white space.", "Write a document."
    ),
    "BLIS0008": CodeInfo("alias contains itself", "An alias refers to a value it is part of.", "Write the value out."),
    "BLIS0009": CodeInfo(
        "too many values",
        "After expanding aliases the document has more values than any reasonable specification.",
        "Move bulk data into a trace file.",
    ),
    "BLIS0010": CodeInfo("nested too deeply", "Maps and lists are nested beyond the limit.", "Flatten the document."),
    "BLIS0011": CodeInfo(
        "file too large",
        "Specifications are small; bulk data does not belong in YAML.",
        "Move it into a trace file.",
    ),
    "BLIS0012": CodeInfo("not UTF-8", "The file's bytes are not UTF-8 text.", "Save the file as UTF-8."),
    "BLIS0013": CodeInfo(
        "unknown tag",
        "A value carries a YAML tag that means nothing here.",
        "Remove the tag (the part after `!`).",
    ),
    "BLIS0014": CodeInfo("control character", "The text contains an invisible control character.", "Delete it."),
    "BLIS0015": CodeInfo(
        "number out of range",
        "A whole number does not fit into 64 bits.",
        "Use a smaller number, or quote an identifier.",
    ),
    "BLIS0016": CodeInfo(
        "unknown alias", "`*name` refers to an anchor that does not exist above it.", "Define `&name` first."
    ),
    "BLIS1001": CodeInfo(
        "unknown key", "The schema has no such key at this place.", "Correct the spelling or remove the key."
    ),
    "BLIS1002": CodeInfo("missing key", "A key without a default is absent.", "Add it."),
    "BLIS1003": CodeInfo(
        "wrong type", "The value is of another type than the schema allows.", "Write it as the message says."
    ),
    "BLIS1004": CodeInfo("value not allowed", "Only certain values are allowed here.", "Use one of those listed."),
    "BLIS1005": CodeInfo("out of range", "A number is below or above what is possible.", "Use a number in the range."),
    "BLIS1006": CodeInfo(
        "wrong length", "A list, map or text has too few or too many elements.", "Add or remove some."
    ),
    "BLIS1007": CodeInfo(
        "malformed text", "A text does not have the required form.", "Follow the pattern in the message."
    ),
    "BLIS1008": CodeInfo(
        "wrong kind of document",
        "The document's `kind` is not the one required here.",
        "Refer to a document of that kind.",
    ),
    "BLIS1009": CodeInfo(
        "override without a target",
        "An argument such as `--set` or `--axis` is malformed, or its path does not exist or passes through a "
        "value that has no keys.",
        "Use the dotted path of a key, such as `cluster.instances=8`.",
    ),
    "BLIS1099": CodeInfo(
        "schema violation", "The value breaks a rule of the schema.", "See the reference of the document."
    ),
    "BLIS2001": CodeInfo(
        "unknown name", "No document of that kind has this name.", "Use a name that `spec list` shows."
    ),
    "BLIS2002": CodeInfo(
        "missing file",
        "A file this document refers to cannot be read.",
        "Check the path; it starts at the file that says it.",
    ),
    "BLIS2003": CodeInfo(
        "circular inheritance",
        "An experiment extends itself, or so many others in a chain (more than 32) that this must be a mistake.",
        "Break the cycle, or extend an experiment nearer to the beginning of the chain.",
    ),
    "BLIS2004": CodeInfo(
        "heads or layers cannot be divided",
        "Tensor parallelism splits attention heads evenly across accelerators; each pipeline stage needs a layer.",
        "Choose a `tensor_parallel` that divides the number of heads, and no more stages than layers.",
    ),
    "BLIS2005": CodeInfo(
        "model does not fit",
        "Weights, activations and overhead leave no memory for the KV cache.",
        "Use more tensor parallelism, a larger accelerator, or a quantised model.",
    ),
    "BLIS2006": CodeInfo(
        "KV cache smaller than a request",
        "Even the smallest request of a client needs more KV blocks than there are, so nothing can ever run.",
        "Raise `kv_blocks` or shorten the requests.",
    ),
    "BLIS2007": CodeInfo(
        "context limit smaller than a request",
        "Even the smallest request of a client is longer than `max_model_len`.",
        "Raise `engine.max_model_len` or shorten the requests.",
    ),
    "BLIS2008": CodeInfo(
        "empty interval",
        "A lower bound is above its upper bound, or the warm-up lasts until the horizon.",
        "Swap or correct them.",
    ),
    "BLIS2009": CodeInfo(
        "mean out of bounds",
        "The mean of a length lies outside [min, max].",
        "Correct the mean or the bounds.",
    ),
    "BLIS2010": CodeInfo(
        "no positive weight", "A table of weights has only zeros.", "Give at least one positive weight."
    ),
    "BLIS2011": CodeInfo(
        "no coefficients",
        "No measurement exists for this combination of model, hardware and tensor parallelism.",
        "Give `alpha` and `beta`, choose a measured combination, or another step-time model.",
    ),
    "BLIS2012": CodeInfo(
        "expectation without a bound",
        "An entry of `expect` or `constraints` says nothing about its metric.",
        "Add `min`, `max` or `equals`.",
    ),
    "BLIS2013": CodeInfo(
        "unknown metric",
        "The report has no such metric, or the experiment no such expectation.",
        "Use a dotted path of the report, or the metric of an entry of `expect`.",
    ),
    "BLIS2014": CodeInfo(
        "not exactly one source of requests",
        "A workload is either generated by `clients` or recorded in a `trace`.",
        "Give exactly one of the two; `clients` also need `rate_per_s`.",
    ),
    "BLIS2015": CodeInfo(
        "changed file",
        "A file's content does not match the digest that pins it.",
        "Restore the file, or update `sha256`.",
    ),
    "BLIS2016": CodeInfo(
        "endless run",
        "Requests are unlimited and time is unlimited, so the run never ends.",
        "Set `requests` or `horizon_us`.",
    ),
    "BLIS2017": CodeInfo("duplicate id", "Two clients, or two calls of a session, have the same id.", "Rename one."),
    "BLIS2018": CodeInfo(
        "incomplete model",
        "The model's configuration lacks a figure, or two figures contradict each other.",
        "Compare it with the model's config.json.",
    ),
    "BLIS2019": CodeInfo(
        "step too small for a whole prompt",
        "Chunked prefill is off, so a prompt needs one step, and the longest one allowed exceeds its token budget.",
        "Make max_num_batched_tokens at least max_model_len, or leave chunked prefill on.",
    ),
    "BLIS2020": CodeInfo(
        "shared prefix of too many KV blocks",
        "Shared blocks are kept one by one; a prefix of more than 1,048,576 of them would take all memory.",
        "Raise `engine.block_size_tokens` (vLLM's default is 16), or shorten the prefix.",
    ),
    "BLIS2021": CodeInfo(
        "named twice",
        "Two pools, two different models of the pools, two scorers of one list, or two recordings have the same name.",
        "Rename or remove one.",
    ),
    "BLIS2022": CodeInfo(
        "instances do not add up",
        "`cluster.instances`, the pools, and the prefill and decode instances of disaggregation disagree.",
        "Give each number once: with pools, `cluster.instances` and the numbers in `disaggregation` are not needed.",
    ),
    "BLIS2023": CodeInfo(
        "roles do not fit disaggregation",
        "Pools have roles without disaggregation, or disaggregation does not know which instances prefill and decode.",
        "Give pools the roles `prefill` and `decode`, or set `prefill_instances` and `decode_instances`.",
    ),
    "BLIS2024": CodeInfo(
        "no instance serves the model",
        "A client asks for a model that no instance of the cluster serves: all of its requests would be rejected.",
        "Correct the name, or add a pool that serves the model.",
    ),
    "BLIS2025": CodeInfo(
        "pools that cannot hand over",
        "What the prefill instances compute is of no use to the decode instances: another model, other KV blocks.",
        "Give prefill and decode pools the same models, block size and KV-cache type.",
    ),
    "BLIS2026": CodeInfo(
        "setting without effect",
        "Another setting makes this one meaningless, so results would not be what it promises.",
        "Change the other one as the message says, or remove the setting.",
    ),
    "BLIS2027": CodeInfo(
        "not supported by this batching rule",
        "The batching rule does not support this setting.",
        "Change the setting as the message says, or use another batching rule.",
    ),
    "BLIS2028": CodeInfo(
        "calls that cannot follow one another",
        "A call of a session waits for one that is not there, or is listed below it.",
        "List calls in the order in which they can be sent, and name those above.",
    ),
    "BLIS2029": CodeInfo(
        "adapters that contradict each other",
        "LoRA adapters are not named, named twice, without a weight for each, or too large for their slots.",
        "Give `names` or a `count`, `weights` for each or `zipf`, and slots that can hold them.",
    ),
    "BLIS2030": CodeInfo(
        "experts do not divide",
        "Expert parallelism gives each of so many accelerators as many whole experts; dense models have none.",
        "Spread them over a number of accelerators that divides the number of experts.",
    ),
    "BLIS2031": CodeInfo(
        "ranks that cannot work together",
        "Ranks of `data_parallel` that share experts take their steps together; not everything is simulated beside "
        "that, and not every step-time model knows what it takes.",
        "Change the setting as the message says; docs/wide.md says what can be combined.",
    ),
    "BLIS2032": CodeInfo(
        "impossible draft acceptance",
        "The acceptance of drafted tokens is given twice, not at all, or as rates that no drafts can have.",
        "Give `acceptance`, or one of `acceptance_rates` for each of `draft_tokens`, none above the one before it.",
    ),
    "BLIS2033": CodeInfo(
        "no such distribution",
        "Lengths are given twice, not at all, or by figures that no lengths have: a p95 below the median, percentiles"
        " that fall, edges of bins that do not rise.",
        "Give each of them once, and correct the figures.",
    ),
    "BLIS2050": CodeInfo(
        "inconsistent lifecycle of instances",
        "A failure, a node pool or the autoscaler's bounds contradict themselves or the existing instances.",
        "Read the message; docs/lifecycle.md describes `cluster.failures`, `nodes` and `autoscaler`.",
    ),
    "BLIS2060": CodeInfo(
        "study without points",
        "Its exclusions remove every point of its axes.",
        "Exclude less, or add values.",
    ),
    "BLIS2061": CodeInfo(
        "too many points",
        "Axes multiply: ten values on each of six axes are a million points, and each runs once with each seed.",
        "Give an axis fewer values, split the study, or let paths change together with `zip`.",
    ),
    "BLIS2062": CodeInfo(
        "path that cannot be an axis",
        "An assignment would have no effect: another one has the same path, or replaces it from above; or it is "
        "`seed`, which the study's own `seeds` set.",
        "Assign to each path once; what all runs have in common belongs under `set`.",
    ),
    "BLIS2063": CodeInfo(
        "axes that cannot change together",
        "The paths of an entry of `zip` have different numbers of values.",
        "Give all of them the same number of values.",
    ),
    "BLIS2064": CodeInfo(
        "invalid range",
        "A range goes from a smaller to a larger number, with either `step` or `count`; a logarithmic one has `count` "
        "and starts above 0.",
        "Correct it, or list the values.",
    ),
    "BLIS2065": CodeInfo(
        "bound that no run can decide",
        "No value can meet the bound, or both bounds on a metric, so that nothing could ever hold; or a plan, which "
        "decides itself how long its runs last, is to bound what they count from beginning to end.",
        "Correct the bounds; shares are from 0 to 1. Instead of counts, bound rates, shares and latencies.",
    ),
    "BLIS2066": CodeInfo(
        "exclusion without effect",
        "An entry of `exclude` names a path that no axis varies, or a value that it never has.",
        "Name a path and a value of an axis.",
    ),
    "BLIS2067": CodeInfo(
        "no point can run",
        "Every point that was tried is an experiment with errors; those of the first one are shown.",
        "Correct the experiment, or the values of the axes.",
    ),
    "BLIS2068": CodeInfo(
        "listed twice",
        "Runs of one point with the same seed, points with the same values, and cases with the same assignments are "
        "the same. Cases whose names differ at most in upper and lower case have the same golden on some systems.",
        "List each seed and value once, and give each case a name and values of its own.",
    ),
    "BLIS2069": CodeInfo(
        "metric that no run reports",
        "An objective, a constraint or an expectation is about a section of the report that experiments like this do "
        "not have, or about a pool, an instance, a class or a tenant that is not there.",
        "Name a metric of this experiment's report (`blis-tui run` prints one), or configure what it is about.",
    ),
    "BLIS2070": CodeInfo(
        "invalid expectation of the course of a run",
        "An entry of `expect` with `always`, `never`, `eventually` or `count` is not a breakpoint or condition, or has "
        "keys that cannot be combined.",
        "Write it as a breakpoint (docs/reference/terminal/conditions.md).",
    ),
    "BLIS2071": CodeInfo(
        "too many calls or items",
        "A session of a client can have more calls than the 100,000 that are possible (its largest number of turns "
        "times the calls of a turn), or a prompt more images, pieces of audio or videos than 10,000.",
        "Lower `session.turns`, or the `count` of the items.",
    ),
    "BLIS2100": CodeInfo(
        "invalid trace",
        "A recorded workload cannot be read: a column is missing, unknown or given twice, the unit of its times is not "
        "known, or cells hold invalid values.",
        "Correct the rows, or set `columns` and `time_unit` of the trace to say how to read them.",
    ),
}

CODES: Final[Mapping[str, CodeInfo]] = MappingProxyType(_TABLE)
"""Every diagnostic code."""


MAX_SHOWN: Final = 20
"""Maximum number of diagnostics shown as text; the rest are only counted."""

_MOST_NEAR: Final = 3
_MAX_NOTES: Final = 5
_MAX_NUMBERS: Final = 3
MOST_TRACE_PROBLEMS: Final = 50
"""Reading of a trace stops after this many problems."""
_MAX_LINE: Final = 160
"""Longer source lines are clipped around the marked columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem; ``line``, ``column`` and ``end_column`` count code points from 1 (0 = no position)."""

    code: str
    severity: str = "error"
    message: str
    file: str
    line: int = 0
    column: int = 0
    end_column: int = 0
    path: str = ""
    """Dotted path of the key or value in its document; empty = the document itself."""
    source_line: str = ""
    help: str | None = None
    notes: tuple[str, ...] = ()
    """Further places with the same kind of problem, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProblem:
    """One invalid cell of a trace file; ``line`` counts from 1 including the header, 0 = the whole file."""

    file: str
    line: int
    column: str
    """Name of the column; empty = the whole line."""
    message: str
    help: str | None = None
    cell: str = ""
    """The cell as quoted at the start of the message; messages about similarly invalid cells differ only in it."""


def located(code: str, message: str, place: Location, *, path: DataPath = (), hint: str | None = None) -> Diagnostic:
    """Return a diagnostic about the text at ``place``; without a hint, it has the remedy of its code."""
    lines = place.source.lines
    span = place.span
    return Diagnostic(
        code=code,
        message=message,
        file=place.source.name,
        line=span.line,
        column=span.column,
        end_column=span.end_column,
        path="" if place.source.is_argument else dotted(path),
        source_line=lines[span.line - 1] if span.line <= len(lines) else "",
        help=hint or _remedy(code),
    )


def _remedy(code: str) -> str:

    words = CODES[code].remedy.removesuffix(".")
    return words[0].lower() + words[1:]


def about(
    document: Document,
    path: DataPath,
    code: str,
    message: str,
    *,
    key: bool = False,
    hint: str | None = None,
) -> Diagnostic:
    """Return a diagnostic about the value (or the key) at ``path`` of ``document``."""
    return located(code, message, document.place(path, key=key), path=path, hint=hint)


def suggestion(wrong: str, known: Iterable[str], *, otherwise: str = "one of", meant: Iterable[str] = ()) -> str:
    """Return a hint for an unknown name: its known synonym, else the nearest names, else all (at most a dozen).

    Args:
        wrong: the unknown name.
        known: the valid names.
        otherwise: words before the list of all names.
        meant: synonyms of ``wrong`` from other tools; those that are not known are ignored.
    """
    names = sorted(known)
    if not names:
        return "there are none"
    near = next((word for word in meant if word in names), None) or nearest(wrong, names)
    near_ones = [near] if near else begin_alike(wrong, names)
    if 0 < len(near_ones) <= _MOST_NEAR:
        return "did you mean " + " or ".join(f"`{name}`" for name in near_ones) + "?"
    shown = ", ".join(f"`{name}`" for name in names[:12])
    return f"{otherwise} {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the diagnostics sorted by file and position; of those that say the same of a place, the first.

    What several pools inherit is written once, so that the same words about the same place are one diagnostic.
    """
    unique: dict[tuple[object, ...], Diagnostic] = {}
    for diagnostic in diagnostics:
        place = (diagnostic.line, diagnostic.column) if diagnostic.line else diagnostic.path
        known = unique.setdefault((diagnostic.file, place, diagnostic.code, diagnostic.message), diagnostic)
        if len(diagnostic.path) < len(known.path):
            unique[diagnostic.file, place, diagnostic.code, diagnostic.message] = diagnostic
    return sorted(
        unique.values(),
        key=lambda diagnostic: (
            diagnostic.file,
            diagnostic.line,
            diagnostic.column,
            diagnostic.code,
            diagnostic.message,
        ),
    )


def render_text(diagnostics: Sequence[Diagnostic], *, limit: int | None = MAX_SHOWN) -> str:
    """Render diagnostics for people; beyond ``limit`` only their number is given; None = there is no limit."""
    parts = [_render_one(diagnostic) for diagnostic in diagnostics[:limit]]
    hidden = len(diagnostics) - len(parts)
    if hidden > 0:
        parts.append(f"... and {hidden} more error{'' if hidden == 1 else 's'}: `blis-tui check --all` shows them")
    return "\n\n".join(parts)


def _render_one(diagnostic: Diagnostic) -> str:
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {printable(diagnostic.message)}"]
    file = printable(diagnostic.file)
    place = (
        f"{file}:{diagnostic.line}:{diagnostic.column}"
        if diagnostic.line and not diagnostic.file.startswith("--")
        else file
    )
    gutter = " " * len(str(diagnostic.line)) if diagnostic.line else " "
    lines.append(f"{gutter}--> {place}" + (f"  ({printable(diagnostic.path)})" if diagnostic.path else ""))
    if diagnostic.source_line.strip():
        text, start, width = _marked(diagnostic)
        lines.append(f"{gutter} |")
        lines.append(f"{diagnostic.line} | {text}")
        lines.append(f"{gutter} | {' ' * start}{'^' * width}")
    lines += [f"{gutter} = note: {printable(note)}" for note in diagnostic.notes]
    if diagnostic.help:
        lines.append(f"{gutter} = help: {printable(diagnostic.help)}")
    return "\n".join(lines)


def _marked(diagnostic: Diagnostic) -> tuple[str, int, int]:
    """Return the source line as shown, and the terminal column and width of its mark."""
    line, start, end = diagnostic.source_line, diagnostic.column - 1, diagnostic.end_column - 1
    if len(line) > _MAX_LINE:
        left = max(0, min(start - 20, len(line) - _MAX_LINE))
        line = line[left : left + _MAX_LINE]
        start, end = start - left, end - left
    before, marked = printable(line[:start]), printable(line[start:end])
    return before + marked + printable(line[end:].rstrip()), cells(before), max(1, cells(marked))


def cells(text: str) -> int:
    """Return the terminal width of a text: two columns for wide East Asian characters and emoji, none for combining."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
        for char in text
    )


def from_trace_problems(problems: Sequence[TraceProblem]) -> Diagnostic:
    """Return one diagnostic for the problems of a trace: the first one, and a note for each other kind."""
    kinds: dict[tuple[str, str], list[TraceProblem]] = {}
    for problem in problems:
        kinds.setdefault((problem.column, problem.message.removeprefix(problem.cell)), []).append(problem)
    first, *others = kinds.values()
    notes = [_note(same) for same in others[:_MAX_NOTES]]
    if len(first) > 1:
        notes.insert(0, f"also {_lines(first[1:])}")
    if len(others) > _MAX_NOTES:
        notes.append(f"and {len(others) - _MAX_NOTES} more kinds of problems")
    if len(problems) == MOST_TRACE_PROBLEMS:
        notes.append(f"the file was read up to the {MOST_TRACE_PROBLEMS}th problem")
    problem = first[0]
    return Diagnostic(
        code="BLIS2100",
        message=problem.message,
        file=problem.file,
        line=problem.line,
        column=1 if problem.line else 0,
        end_column=2 if problem.line else 0,
        path=problem.column,
        help=problem.help,
        notes=tuple(notes),
    )


def _note(same: Sequence[TraceProblem]) -> str:
    """Return the note for one kind of problem in a trace, with its places."""
    problem = same[0]
    where = f"line {problem.line}" + (f" ({problem.column})" if problem.column else "")
    also = f"; also {_lines(same[1:])}" if same[1:] else ""
    advice = f" ({problem.help})" if problem.help else ""
    return f"{where}: {problem.message}{advice}{also}"


def _lines(problems: Sequence[TraceProblem]) -> str:
    """Return the first few line numbers of some problems, and how many more there are."""
    numbers = [f"{problem.line}" for problem in problems[:_MAX_NUMBERS]]
    more = f" and {len(problems) - _MAX_NUMBERS} more" if len(problems) > _MAX_NUMBERS else ""
    return f"in line{'' if len(problems) == 1 else 's'} {', '.join(numbers)}{more}"


_LETTERS_A_WORD_SLIP: Final = 3
"""A word may differ in one letter per this many."""
_LETTERS_A_NAME_SLIP: Final = 5
"""A whole name may differ in one letter per this many (for words run together, for example)."""
_LONGEST: Final = 100
_REMEMBERED: Final = 4096
"""Cache size; more than the number of key names, all of which are compared with each word looked up."""


@lru_cache(_REMEMBERED)
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case; ``max-num-seqs`` and ``max_num_seqs`` have the same words."""
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``wrong`` most probably means; None if none is near enough.

    Names with equally many words are compared word by word: ``prompt_tokens`` is not near ``output_tokens``, however
    many letters they share.
    """
    if len(wrong) > _LONGEST:
        return None
    scored = [(score, name) for name in known if (score := _score(words_of(wrong), words_of(name))) is not None]
    best = min((score for score, _ in scored), default=0)
    return max((name for score, name in scored if score == best), default=None)


def begin_alike(wrong: str, known: Iterable[str]) -> list[str]:
    """Return the known names that begin with ``wrong``, or with which ``wrong`` begins."""
    ours = "-".join(words_of(wrong))
    pairs = [("-".join(words_of(name)), name) for name in known]
    return [
        name
        for theirs, name in pairs
        if min(len(ours), len(theirs)) >= _LETTERS_A_WORD_SLIP and (theirs.startswith(ours) or ours.startswith(theirs))
    ]


def _score(wrong: tuple[str, ...], name: tuple[str, ...]) -> int | None:
    """Return the distance between two names; None = too far apart."""
    if len(wrong) == len(name):
        slips = [_few_slips(ours, theirs, _LETTERS_A_WORD_SLIP) for ours, theirs in zip(wrong, name, strict=True)]
        if None not in slips and all(
            len(ours) > _LETTERS_A_NAME_SLIP or ours[0] == theirs[0]  # `v100` is no misspelt `h100`
            for ours, theirs in zip(wrong, name, strict=True)
        ):
            return sum(filter(None, slips))
    count = _few_slips("_".join(wrong), "_".join(name), _LETTERS_A_NAME_SLIP)
    if count is not None:
        return count
    # Words may be missing or in another order, but more than half must match.
    common = set(wrong) & set(name)
    few, many = sorted((len(set(wrong)), len(set(name))))
    return _LONGEST + many - few if len(common) == few and 2 * few > many else None


def _few_slips(wrong: str, name: str, letters: int) -> int | None:
    """Return the edit distance if it is at most one per ``letters`` letters, else None."""
    most = max(len(wrong), len(name)) // letters
    if abs(len(wrong) - len(name)) > most:
        return None
    slips = _slips(wrong, name)
    return slips if slips <= most else None


def _slips(wrong: str, name: str) -> int:
    """Return the edit distance with insertions, deletions, replacements and swaps (optimal string alignment)."""
    before: list[int] = []
    above = list(range(len(name) + 1))
    for i, ours in enumerate(wrong, 1):
        row = [i]
        for j, theirs in enumerate(name, 1):
            best = min(row[j - 1] + 1, above[j] + 1, above[j - 1] + (ours != theirs))
            if i > 1 and j > 1 and ours == name[j - 2] and wrong[i - 2] == theirs:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, above = above, row
    return above[-1]
