"""What is remembered of texts and values changes nothing that is found out about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.load import load
from blis_tui.spec.places import shipped_specs
from blis_tui.spec.read import parse
from blis_tui.spec.schema import PlaceCache, complete, violations
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from blis_tui.base.source import Json

BROKEN = Path(__file__).parent / "broken"


def _found(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        validate(path)
    return str(caught.value)


def test_a_mistake_is_found_each_time() -> None:
    schema_errors = [one for one in sorted(BROKEN.glob("*.txt")) if "[BLIS10" in one.read_text(encoding="utf-8")]
    for path in [one.with_suffix(".yaml") for one in schema_errors[::5]]:
        assert _found(path) == _found(path), path.name


@pytest.mark.parametrize("alpha", [[0, 0], [0, 0, 0, 0], [0, "a", 0]])
def test_what_a_reference_allows_may_be_refused_beside_it(alpha: Json) -> None:
    data: Json = {"latency": {"kind": "blackbox", "alpha": alpha, "beta": [0, 0, 0]}}
    once, again = ([one for one in violations(data, "Experiment") if "alpha" in one.path] for _ in range(2))
    assert once == again != []


def test_a_number_is_not_the_truth_value_that_python_takes_for_equal() -> None:
    for value, wrong in ((1, False), (True, True), (1.0, False), (0, True)):
        data: Json = {"cluster": {"instances": value}}
        assert bool([one for one in violations(data, "Experiment") if one.path[:1] == ("cluster",)]) is wrong


def test_nobody_gets_what_another_has_changed() -> None:
    source = Source("mine", "a: {b: [1, 2]}\nc: [{d: 1}]\n")
    first = parse(source)
    assert isinstance(first.data, dict)
    first.data["c"] = "changed"
    first.forget(("a",))
    assert parse(source).data == {"a": {"b": [1, 2]}, "c": [{"d": 1}]}
    assert ("a", "b", 0) in parse(source).values
    data: Json = {"cluster": {}, "policy": {"routing": {"kind": "weighted"}}}
    whole = complete(data, "Experiment")
    assert isinstance(whole, dict)
    expected = complete(data, "Experiment")
    for part in whole.values():
        if isinstance(part, dict):
            part.clear()
    assert complete(data, "Experiment") == expected != whole
    assert data == {"cluster": {}, "policy": {"routing": {"kind": "weighted"}}}


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.blis.yaml"
    text = (shipped_specs() / "experiments" / "quickstart.blis.yaml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    before = load(path)
    path.write_text(text.replace("seed: 42", "seed: 43"), encoding="utf-8")
    assert (before.seed, load(path).seed) == (42, 43)


def test_it_forgets_before_it_grows_without_end() -> None:
    memory = PlaceCache[int]()
    keys = [(0, str(number)) for number in range(10_000)]
    for number, key in enumerate(keys):
        memory.put(key, found=number)
    assert memory.get(keys[-1]) == len(keys) - 1
    assert len([key for key in keys if memory.get(key) is not None]) < 1000
