"""Hints that translate names of other tools; they take precedence over hints based on spelling."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.spec.diagnostics import suggestion
from blis_tui.spec.nearness import nearest, words_of
from blis_tui.spec.scalars import flow
from blis_tui.spec.synonyms import DOCUMENTS, KEYS, LATENCIES, METRICS, NOTES, OWN_PATHS, STATISTICS, WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from blis_tui.spec.source import DataPath, Json

_NO_MEANING: Final = frozenset({"ms", "s", "us", "seconds", "latency", "percentile"})
"""Words that do not tell which latency a metric is."""
_PARTS: Final = frozenset({"model", "hardware", "latency", "workload", "policy", "cluster", "engine"})
"""Keys of experiments that contain other keys."""
_OF_METADATA: Final = ("name", "description")
_KIND: Final = "kind"
"""A key of so many maps that it does not tell where it belongs."""
_COLUMNS: Final = ["trace", "columns"]
_LONGEST: Final = 40
"""Longer values are not repeated in hints."""


def plain(name: str) -> str:
    """Return a name as in the tables of synonyms: ``--max-num-seqs`` gives ``max_num_seqs``."""
    return "_".join(words_of(name))


def key_hint(
    kind: str, path: DataPath, key: str, value: Json, known: Collection[str], *, as_argument: bool = False
) -> str:
    """Return a hint for an unknown key at ``path`` of a document of a kind whose valid keys there are ``known``.

    With ``as_argument`` the key was written on the command line, and the hint is for there.
    """
    from blis_tui.spec.former_keys import former_key  # noqa: PLC0415  (only needed for unknown keys)

    older = former_key(path, key)
    if older is not None and (older.now in known or not older.now or "." in older.now):
        return f"{older.sentence()}; `blis-tui upgrade FILE` rewrites older documents"
    if "." in key and (top := key.partition("."))[0] in known:
        written = f"{top[0]}: {{{top[2]}: {_shortly(value)}}}"
        return f"dotted paths are for `--set`, `cases` and `axes`: write `{written}`"
    if key.strip() != key:  # YAML itself strips spaces, but no other white space
        return "delete the white space around it: only plain spaces indent a line"
    if not path and key in _OF_METADATA and "metadata" in known:
        return f"write `metadata: {{{key}: {_shortly(value)}}}`"
    if path and "from" in known and "to" in known and isinstance(value, list | dict):
        return f"paths are written with dots: `{path[-1]}.{key}: {_shortly(value)}`"
    if "metric" in known and "equals" in known and (hint := expected_hint(key, value)):
        return hint
    name = plain(key)
    same = next((one for one in known if plain(one) == name), None)
    if same is not None:
        return f"write `{same}`"
    meant = KEYS.get(name, ())
    inside = str(next((step for step in reversed(path) if isinstance(step, str)), ""))
    if here := [last for one in meant if (last := _last(one)) in known and (last != _KIND or f".{inside}." in one)]:
        return _meaning(key, value, here[0])
    if name in NOTES:
        return NOTES[name]
    place = [str(step) for step in path if isinstance(step, str)]
    place = place if kind == "Experiment" else [kind.lower(), *place]
    if place[-2:] == _COLUMNS:  # what a column holds is no key of clients that has the same name
        near = next((one for one in sorted(known) if one.startswith(f"{name}_")), None) or nearest(key, known)
        return f"did you mean `{near}`?" if near else suggestion(key, known, otherwise="known keys are")
    own = [one for one in OWN_PATHS if _last(one) == name and name != _KIND and not one.startswith("expect.")]
    if not own and (near := nearest(key, known)):
        return _meaning(key, value, near)
    meant = (*own, *(one for one in meant if name != _KIND))
    if kind == "Study" and (hint := _of_the_experiment(key, value, meant)):
        return hint
    elsewhere = [one for one in meant if _may_mean(place, one) and one.split(".")[:-1] != place]
    if elsewhere:
        owner = (
            " of the experiment" if kind != "Experiment" else " here" if "." in elsewhere[0] else " at the top level"
        )
        return f"it is `{elsewhere[0]}`{owner}{_line(elsewhere[0], value, as_argument=as_argument)}"
    if (near := nearest(key, known)) is not None:
        return _meaning(key, value, near)
    return suggestion(key, known, otherwise="known keys are")


def _shortly(value: Json) -> str:
    """Return a value as it is written, if it is short."""
    text = flow(value)
    return text if len(text) <= _LONGEST else "…"


def expected_hint(text: str, value: Json = None) -> str:
    """Return how to write an expectation such as ``ttft_p99 <= 200``, or the key ``ttft_p99`` with a bound."""
    found = _COMPARED.fullmatch(text.strip())
    metric, sign, bound = found.groups() if found else (text, "<=", "")
    if not found and (isinstance(value, bool) or not isinstance(value, int | float)):
        return ""
    from blis_tui.spec.metric_names import is_metric  # noqa: PLC0415  (only needed for wrong documents)

    named = metric if is_metric(metric) else next(iter(metrics_meant(metric)), "")
    key = "equals" if sign.startswith("=") else "min" if sign.startswith(">") else "max"
    return f"write `metric: {named}, {key}: {bound or flow(value)}`" if named else ""


_COMPARED: Final = re.compile(r"([A-Za-z_][\w.-]{0,99}) ?(<=?|>=?|==?) ?([0-9.]{1,20})")


def _meaning(key: str, value: Json, meant: str) -> str:
    """Return a hint for a key that is probably another one; a number in another unit is converted."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = _split(plain(key))[1]
        same = in_unit_of(meant, unit, value) if unit != _split(meant)[1] else None
        if same is not None:
            return f"write `{meant}: {same}`: it is {unit_of(meant)}"
    return f"did you mean `{meant}`?"


def unit_of(key: str) -> str:
    """Return the unit of a key as it is said: ``in microseconds``, ``per second``, ``in TB``; empty = it has none."""
    stem, unit = _split(key)
    name = _UNITS.get(unit, ("", "", 0))[1]
    rate = "/s" if unit and key.endswith(f"{unit}_per_s") else ""
    return f"per {name.removesuffix('s')}" if stem.endswith("_per") else f"in {name}{rate}" if name else ""


def in_unit_of(key: str, unit: str, value: float) -> str | None:
    """Return an amount in the unit of a key; None if it has none, or one of something else."""
    stem, own = _split(key)
    what, _, ours = _UNITS.get(own, ("", "", 0))
    other, _, theirs = _UNITS.get(_SHORT.get(unit.lower(), unit.lower()), ("", "", 0))
    if not what or what != other:
        return None
    found = value * ours / theirs if stem.endswith("_per") else value * theirs / ours
    return f"{found:.0f}" if found == int(found) else f"{found:g}"


def _split(key: str) -> tuple[str, str]:
    """Return a key without its unit, and the unit; a rate of bytes has theirs."""
    stem, _, last = key.removesuffix("_per_s").rpartition("_")
    if key.endswith("_per_s") and _UNITS.get(last, ("",))[0] == "bytes":
        return stem, last
    stem, _, last = key.rpartition("_")
    unit = _SHORT.get(last, last)
    return (stem, unit) if stem and unit in _UNITS else (key, "")


_UNITS: Final = {
    "us": ("time", "microseconds", 1),
    "ms": ("time", "milliseconds", 1000),
    "s": ("time", "seconds", 10**6),
    "min": ("time", "minutes", 60 * 10**6),
    "h": ("time", "hours", 3600 * 10**6),
    "mb": ("bytes", "MB", 10**6),
    "gb": ("bytes", "GB", 10**9),
    "tb": ("bytes", "TB", 10**12),
}
"""Unit, as in the names of keys -> what is measured, its name, and its size."""
_SHORT: Final = {
    **dict.fromkeys(("microseconds", "micros", "usec", "usecs"), "us"),
    **dict.fromkeys(("milliseconds", "millis", "msec", "msecs"), "ms"),
    **dict.fromkeys(("seconds", "second", "sec", "secs"), "s"),
    **dict.fromkeys(("minutes", "minute", "mins", "m"), "min"),
    **dict.fromkeys(("hours", "hour", "hrs"), "h"),
}
"""Other names of these units."""


def _of_the_experiment(key: str, value: Json, meant: Collection[str]) -> str:
    """Return a hint for an experiment key in a study, which assigns by path; empty if it is none."""
    if key in _PARTS:
        below = next(iter(value), "") if isinstance(value, dict) else ""
        path = f"{key}.{below}" if below else key
    else:
        path = next((one for one in meant if not one.startswith("study.")), "")
    return f"it belongs to the experiment: assign to `{path}` under `set` or `axes`" if path else ""


def renamed(given: Collection[str], missing: str) -> str | None:
    """Return the given key that is a synonym of the missing one; None if there is none."""
    return next((key for key in given if any(_last(one) == missing for one in KEYS.get(plain(key), ()))), None)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _may_mean(place: Sequence[str], path: str) -> bool:
    """Return whether a key at ``place`` can mean ``path``; generic client words count only near clients."""
    if path.startswith(("study.", "expect.")):
        return False
    return not path.startswith(("workload.clients.", "workload.trace.")) or place[:1] in ([], ["workload"])


def _line(path: str, value: Json, *, as_argument: bool) -> str:
    """Return the line or argument that sets the value, if keys of maps do, and the key can have it."""
    steps = path.split(".")
    shown = flow(value)
    if (
        steps[0] not in ("cluster", "engine")
        or isinstance(value, dict | list)
        or value is None
        or len(shown) > _LONGEST
    ):
        return ""
    written = f"{steps[-1]}: {shown}"
    for step in reversed(steps[:-1]):
        written = f"{step}: {{{written}}}"
    return f": write `--set {path}={shown}`" if as_argument else f": write `{written}`"


def word_hint(value: str, options: Collection[str], *, otherwise: str = "one of") -> str:
    """Return a hint for an unknown word where one of ``options`` is expected."""
    return suggestion(value, options, otherwise=otherwise, meant=WORDS.get(plain(value), ()))


def document_hint(kind: str, name: str, known: Collection[str]) -> str:
    """Return a hint for a name that no document of the kind has."""
    meant = DOCUMENTS.get(kind, {}).get(plain(name), ())
    return suggestion(name, known, otherwise="known names are", meant=meant)


def metric_hint(metric: str, known: Collection[str]) -> str:
    """Return a hint for a metric that no report has, such as ``ttft_p99`` or ``mean_tpot_ms``."""
    group = {one for one in known if one.startswith(f"{metric.partition('.')[0]}.")}
    return suggestion(metric, group or known, otherwise="examples of metrics are", meant=metrics_meant(metric))


def metrics_meant(metric: str) -> tuple[str, ...]:
    """Return the metrics that a name from elsewhere may mean: ``ttft_p99``, ``mean_tpot_ms``, ``qps``."""
    words = words_of(metric)
    statistics = [one for word in words for one in STATISTICS.get(word, ())]
    rest = [word for word in words if word not in STATISTICS]
    said = [word for word in rest if word not in _NO_MEANING]
    families = LATENCIES.get("_".join(said or rest), ())
    latencies = [f"latency.{family}.{statistics[0] if statistics else 'p99'}" for family in families]
    return (*METRICS.get("_".join(words), ()), *latencies)
