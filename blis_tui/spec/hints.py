"""Hints that translate names of other tools; they take precedence over hints based on spelling."""

from __future__ import annotations

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
    name = plain(key)
    same = next((one for one in known if plain(one) == name), None)
    if same is not None:
        return f"write `{same}`"
    meant = KEYS.get(name, ())
    if here := [last for one in meant if (last := _last(one)) in known]:
        return f"did you mean `{here[0]}`?"
    if name in NOTES:
        return NOTES[name]
    place = [str(step) for step in path if isinstance(step, str)]
    place = place if kind == "Experiment" else [kind.lower(), *place]
    if place[-2:] == _COLUMNS:  # what a column holds is no key of clients that has the same name
        near = next((one for one in sorted(known) if one.startswith(f"{name}_")), None) or nearest(key, known)
        return f"did you mean `{near}`?" if near else suggestion(key, known, otherwise="known keys are")
    own = [one for one in OWN_PATHS if _last(one) == name and name != _KIND]
    if not own and (near := nearest(key, known)):
        return f"did you mean `{near}`?"
    meant = (*own, *(one for one in meant if name != _KIND))
    if kind == "Study" and (hint := _of_the_experiment(key, value, meant)):
        return hint
    elsewhere = [one for one in meant if _may_mean(place, one) and one.split(".")[:-1] != place]
    if elsewhere:
        owner = (
            " of the experiment" if kind != "Experiment" else " here" if "." in elsewhere[0] else " at the top level"
        )
        return f"it is `{elsewhere[0]}`{owner}{_line(elsewhere[0], value, as_argument=as_argument)}"
    return suggestion(key, known, otherwise="known keys are")


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
    if path.startswith("study."):
        return False
    return not path.startswith(("workload.clients.", "workload.trace.")) or place[:1] in ([], ["workload"])


def _line(path: str, value: Json, *, as_argument: bool) -> str:
    """Return the line or argument that sets the value, if one key of one map does."""
    top, _, key = path.partition(".")
    shown = flow(value)
    if top not in ("cluster", "engine") or isinstance(value, dict | list) or value is None or len(shown) > _LONGEST:
        return ""
    return f": write `--set {path}={shown}`" if as_argument else f": write `{top}: {{{key}: {shown}}}`"


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
    return suggestion(metric, group or known, otherwise="examples of metrics are", meant=_metrics(metric))


def _metrics(metric: str) -> tuple[str, ...]:
    words = words_of(metric)
    statistics = [one for word in words for one in STATISTICS.get(word, ())]
    rest = [word for word in words if word not in STATISTICS]
    said = [word for word in rest if word not in _NO_MEANING]
    families = LATENCIES.get("_".join(said or rest), ())
    latencies = [f"latency.{family}.{statistics[0] if statistics else 'p99'}" for family in families]
    return (*METRICS.get("_".join(words), ()), *latencies)
