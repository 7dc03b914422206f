"""Which cases of a large matrix run on each change, and which each night only (``make nightly``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

_T = TypeVar("_T")


def every(step: int, cases: Iterable[_T], *, start: int = 0) -> list[ParameterSet]:
    """All cases, as parameters: from one on, each ``step``-th runs on each change, and the others each night.

    Tests that do different things to the same cases begin with different ones: then each case still meets one of them.
    """
    return [
        pytest.param(case, marks=[] if number % step == start else pytest.mark.nightly)
        for number, case in enumerate(cases)
    ]
