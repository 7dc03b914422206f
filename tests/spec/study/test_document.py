"""What is found wrong with a study before anything runs."""

import json

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import read_study
from blis_tui.spec.study.study_records import Study


def study_over(values: list[object]) -> Study:
    document = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": "x"},
        "experiment": "quickstart",
        "axes": {"engine.max_num_seqs": values},
    }
    return read_study(parse(Source("x", json.dumps(document))))


@pytest.mark.parametrize("count", [1, 2, 64, 65, 128, 129, pytest.param(200, marks=pytest.mark.nightly)])
def test_the_ends_of_an_axis_are_tried_however_long_it_is(count: int) -> None:
    """Where mistakes of counting are: values of the wrong type are wrong at every point."""
    values: list[object] = list(range(1, count + 1))
    assert len(study_over(values).points) == count
    for at in (0, -1):
        wrong = [*values]
        wrong[at] = "many"
        with pytest.raises(SpecError, match="many"):
            study_over(wrong)
