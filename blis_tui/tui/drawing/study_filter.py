"""Filters of a study's points: words and comparisons, compiled to a predicate."""

from __future__ import annotations

import operator
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import suggestion
from blis_tui.base.errors import BlisError
from blis_tui.base.text import printable
from blis_tui.spec.metric_names import is_study_metric
from blis_tui.study.study_rows import short_names, value_text
from blis_tui.study.study_text import wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.base.source import Json
    from blis_tui.spec.study.study_records import Study
    from blis_tui.tui.screens.study_points import PointEntry

    Matches = Callable[[PointEntry], bool]

WORDS: Final[Mapping[str, Callable[[PointEntry], bool]]] = MappingProxyType(
    {
        "ok": lambda one: one.ok is True,
        "broken": lambda one: one.ok is False,
        "front": lambda one: one.on_front,
        "marked": lambda one: one.marked,
        **{
            status: (lambda one, status=status: one.status == status)  # type: ignore[misc]
            for status in ("done", "stopped", "failed", "invalid", "pending")
        },
    }
)
"""Words with a meaning; other words are searched for in the values of the axes."""
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt}
)
_SIGN: Final = re.compile(r"\s*(<=|>=|==|!=|=|<|>)\s*")
_COMPARISON: Final = re.compile(r"([^<>=!]+)(<=|>=|==|!=|=|<|>)(.+)")


class FilterError(BlisError):
    """A filter is invalid."""


def parse_filter(text: str, study: Study) -> Matches | None:
    """Compile a filter; return None for an empty one, which matches every point.

    ``cluster.instances >= 2``, ``policy = vllm-v1`` or ``ttft_ms.p99 < 30`` compares a value of an axis, or a figure
    (the mean over seeds). ``ok``, ``broken``, ``front``, ``marked``, ``done``, ``stopped``, ``failed``, ``invalid`` and
    ``pending`` refer to a point's state. Anything else is searched for in the values of its axes. ``-word`` inverts a
    word. All must match; ``and`` between them is ignored.

    Raises:
        FilterError: a comparison uses something that the study does not have.
    """
    words = [word for word in _SIGN.sub(r"\1", text.strip()).split() if word.lower() != "and"]
    tests = [_test(word, study) for word in words]
    if not tests:
        return None
    return lambda one: all(test(one) for test in tests)


def _test(word: str, study: Study) -> Matches:
    if word.startswith("-") and len(word) > 1:
        test = _test(word[1:], study)
        return lambda one: not test(one)
    if found := _COMPARISON.fullmatch(word):
        return _comparison(found[1], found[2], found[3], study)
    if _SIGN.search(word):
        help_text = "write it as `cluster.instances >= 2`"
        raise FilterError(f"`{printable(word)}` is an incomplete comparison", help=help_text)
    if word.lower() in WORDS:
        return WORDS[word.lower()]
    lower = word.lower()
    return lambda one: any(lower in text for text in _texts(one))


def _texts(one: PointEntry) -> Iterator[str]:
    for path, value in one.point.coordinates.items():
        yield f"{path} {value_text(value)}".lower()


def _comparison(name: str, sign: str, wish: str, study: Study) -> Matches:
    read = _reader(name, study)
    same = sign in {"=", "=="}
    try:
        number = float(wish.replace(",", ""))
    except ValueError:
        if not same and sign != "!=":
            raise FilterError(
                f"`{printable(wish)}` is not a number", help="text can only be compared with = and !="
            ) from None
        return lambda one: (value := read(one)) is not None and (value_text(value).lower() == wish.lower()) == same
    holds = _SIGNS["==" if same else sign]

    def matches(one: PointEntry) -> bool:
        value = read(one)
        return isinstance(value, int | float) and not isinstance(value, bool) and holds(value, number)

    return matches


def _reader(name: str, study: Study) -> Callable[[PointEntry], Json]:
    """Return the reader of an axis value or a figure, by its name or the last part of it."""
    short = {shown: path for path, shown in short_names(study.paths).items()}
    path = short.get(name, name)
    if path in study.paths:
        return lambda one: one.point.coordinates.get(path)
    if name == "point":
        return lambda one: one.point.number
    metric = next((one for one in (name, f"latency.{name}") if is_study_metric(one)), None)
    if metric is None:
        known = (*study.paths, *short, *wanted(study))
        raise FilterError(
            f"no axis and no metric is named `{printable(name)}`",
            help=suggestion(name, known, otherwise="known names are"),
        )
    return lambda one: one.mean(metric)
