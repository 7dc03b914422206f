"""What a walk finds wrong is what jsonschema finds, at the same places; what it completes and remembers is right."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from blis_tui.base.errors import SpecError
from blis_tui.base.source import Source
from blis_tui.spec.load import load
from blis_tui.spec.read import parse, read_document
from blis_tui.spec.reader import _READ, _RULES, Reading, complete, read
from blis_tui.spec.schema import KINDS, File, schema
from blis_tui.spec.shipped import builtin, shipped_specs
from blis_tui.spec.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.source import Json

PATHS: Final = tuple(sorted(shipped_specs().rglob("*.yaml")))
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2**70, 1.0, 0.5, -0.0, 1e300, math.inf, math.nan),
    *("", "x", "x" * 300, "none", "blackbox", "constant", "blis/v1", [], [1], ["a", "a"], [1.0, 1], {}),
    *({"kind": "constant"}, {"kind": "x"}, {"kind": ["x"]}, {"": 1}, [[]], [{"a": 1}]),
)


@cache
def judge(kind: str) -> Draft202012Validator:
    """Jsonschema, with nothing of ours but the files."""
    registry: Registry[Any] = Registry()
    for name in ("common", *map(str.lower, KINDS)):
        registry = registry.with_resource(f"{name}.schema.json", DRAFT202012.create_resource(schema(name)))
    return Draft202012Validator({"$ref": f"{kind.lower()}.schema.json"}, registry=registry)


def judged(data: Any, validator: Draft202012Validator) -> list[str]:
    """What jsonschema finds: places, keywords, and their values or the missing keys."""
    found = []
    for error in validator.iter_errors(data):
        key = error.message.removesuffix(" is a required property")
        wanted = repr(error.validator_value) if error.validator != "required" else key
        found.append(f"{list(error.absolute_path)} {error.validator} {wanted}")
    return sorted(found)


def reported(reading: Reading) -> list[str]:
    """The same of a reading."""
    return sorted(
        f"{list(violation.path)} {violation.keyword} {violation.wanted!r}" for violation in reading.violations
    )


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values are."""
    yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from places(value, (*path, key))


@cache
def shipped(number: int) -> Json:
    return read_document(PATHS[number]).data


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def mutated(random: Random) -> Any:
    """A document that ships, with a few values changed, moved, lost or put in."""
    data: Any = copy.deepcopy(shipped(random.randrange(len(PATHS))))
    for _ in range(random.choice([1, 1, 2, 3])):
        path = random.choice(list(places(data))[1:] or [()])
        if not path:
            break
        parent, key = at(data, path[:-1]), path[-1]
        what = random.choice(["change", "near", "near", "move", "lose", "add"])
        if what == "change":
            parent[key] = copy.deepcopy(random.choice(VALUES))
        elif what == "near" and isinstance(parent[key], int | float):
            parent[key] = random.choice([parent[key] + 1, -parent[key], float(parent[key]), str(parent[key])])
        elif what == "move":
            parent[key] = copy.deepcopy(at(data, random.choice(list(places(data))[1:])))
        elif what == "lose":
            del parent[key]
        elif isinstance(parent, dict):
            parent[random.choice(["extra", "kind", "min", "max", "rate_per_s"])] = copy.deepcopy(random.choice(VALUES))
        else:
            parent.append(copy.deepcopy(random.choice(VALUES)))
        if not isinstance(data, dict):
            break
    return data


SEEDS: Final = st.integers(0, 2**32)
"""Of random numbers: where Hypothesis draws each number itself, that is most of the time."""


def kind_of(data: Any) -> str:
    """What a document says it is."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) and kind in KINDS else "Experiment"


@pytest.mark.parametrize("number", range(len(PATHS)), ids=[path.name for path in PATHS])
def test_what_ships_is_valid_and_stays_so_when_completed(number: int) -> None:
    data: Any = shipped(number)
    kind = str(data["kind"])
    assert judged(data, judge(kind)) == reported(read(data, kind)) == reported(read(data, kind, builtin())) == []
    whole = complete(data, kind)
    assert judged(whole, judge(kind)) == []
    assert complete(whole, kind) == whole == complete(data, kind)


@settings(max_examples=700, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS.map(Random).map(mutated), st.sampled_from([None, None, None, *KINDS]))
def test_the_same_is_found_at_the_same_places(data: Any, other: str | None) -> None:
    kind = other or kind_of(data)
    written = copy.deepcopy(data)
    found = judged(data, judge(kind))
    assert reported(read(data, kind)) == found
    assert reported(read(data, kind)) == found  # some of it is remembered now
    assert repr(data) == repr(written)
    if not found:
        whole = complete(data, kind)
        assert judged(whole, judge(kind)) == []
        assert complete(whole, kind) == whole


def test_mutated_documents_are_of_both_kinds() -> None:
    found = [read(data, kind_of(data)).violations == [] for data in map(mutated, map(Random, range(400)))]
    assert 40 < sum(found) < 360


CHECKED: Final = {"type", "const", "enum", "required", "properties", "anyOf"}
"""Keywords of a condition."""
NOT_CHECKED: Final = {"$schema", "$id", "$defs", "title", "description", "default", "examples", "enumDescriptions"}


def keywords(node: Any, condition: bool = False) -> Iterator[tuple[str, bool]]:
    """The keywords of a schema, and whether they stand in a condition."""
    for keyword, value in node.items() if isinstance(node, dict) else ():
        yield keyword, condition
        inside = condition or keyword == "if"
        if keyword in ("properties", "$defs"):
            parts = list(value.values())
        elif keyword in ("allOf", "anyOf"):
            parts = value
        else:
            parts = [value] if keyword not in {"default", "examples", "const", "enum", "required"} else []
        for part in parts:
            yield from keywords(part, inside)


def test_the_schemas_have_no_keyword_that_a_walk_does_not_know() -> None:
    found = {one for name in ("common", *map(str.lower, KINDS)) for one in keywords(schema(name))}
    assert {keyword for keyword, condition in found if condition} <= CHECKED
    walked = {"$ref", "properties", "additionalProperties", "propertyNames", "required", "items", "allOf"}
    known = {*walked, *_RULES, "if", "then", "else", *NOT_CHECKED, "x-partial"}
    assert {keyword for keyword, condition in found if not condition} <= known


SMALL: Final = (*VALUES, 2, 3, "ab", ["ab"], {"ab": 1}, {"x": "ab"}, [1, True], {"x": 1, "ab": 0.5}, [[1], [True]])
FINITE: Final = tuple(one for one in SMALL if not isinstance(one, float) or math.isfinite(one))
"""The others make jsonschema fail at ``multipleOf``."""
PLAIN: Final = (None, True, False, 0, 1, -1, 1.0, 0.5, "", "x", "ab")
TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null", ["integer", "null"])
SIZES: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LIMITS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
PARTS: Final = ("additionalProperties", "propertyNames", "items")
REFERENCES: Final = tuple(f"common.schema.json#/$defs/{name}" for name in ("metadata", "coefficients", "values"))


def drawn(random: Random, depth: int = 0, *, condition: bool = False) -> Any:
    """A part of a schema, with keywords that a walk knows."""
    if depth > 3 or random.random() < 0.1:
        return random.choice([True, {}])
    node: dict[str, Any] = {}
    for _ in range(random.randint(1, 3)):
        match random.randrange(6 if condition else 13):
            case 0:
                node["type"] = random.choice(TYPES)
            case 1:
                node["const"] = random.choice(PLAIN)
            case 2:
                node["enum"] = random.choices(PLAIN, k=random.randint(0, 5))
            case 3:
                names = random.sample(["x", "ab", "y"], 2)
                node["properties"] = {name: drawn(random, depth + 1, condition=condition) for name in names}
            case 4:
                node["required"] = random.sample(["x", "ab"], random.randint(0, 2))
            case 5 if condition:
                node["anyOf"] = [drawn(random, depth + 1, condition=True) for _ in range(2)]
            case 5:
                node[random.choice(SIZES)] = random.randint(0, 2)
            case 6:
                node[random.choice(LIMITS)] = random.choice([1, 2, 1.5])
            case 7:
                node["pattern"] = random.choice(["^a", "b$", "x"])
            case 8:
                node["$ref"] = random.choice(REFERENCES)
            case 9:
                node["uniqueItems"] = random.choice([True, False])
            case 10:
                node["allOf"] = [drawn(random, depth + 1) for _ in range(2)]
            case 11:
                node["if"] = drawn(random, depth + 1, condition=True)
                node[random.choice(["then", "else"])] = drawn(random, depth + 1)
            case _:
                for name in random.sample(PARTS, random.randint(1, 3)):
                    node[name] = random.choice([drawn(random, depth + 1), name != "additionalProperties"])
    return node


@settings(max_examples=700, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS.map(Random))
def test_of_any_schema_the_same_is_found(random: Random) -> None:
    node = drawn(random)
    validator = cast("Draft202012Validator", judge("Model").evolve(schema=node))
    for data in random.sample(FINITE, 12):
        reading = Reading("Model")
        reading.walk(data, data, node, File("common", None), ())
        assert reported(reading) == judged(data, validator), (node, data)


def test_only_what_is_wanted_is_imported_for_a_wrong_document() -> None:
    script = (
        "import sys, blis_tui\n"
        "try:\n    blis_tui.load('quickstart', set={'seed': 'x'})\nexcept blis_tui.SpecError:\n    pass\n"
        "assert not {'jsonschema', 'referencing'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


BROKEN: Final = Path(__file__).parent / "broken"


def _found(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        validate(path)
    return str(caught.value)


def test_a_mistake_is_found_each_time() -> None:
    schema_errors = [one for one in sorted(BROKEN.glob("*.txt")) if "[BLIS10" in one.read_text(encoding="utf-8")]
    for path in [schema_error.with_suffix(".yaml") for schema_error in schema_errors[::5]]:
        assert _found(path) == _found(path), path.name


@pytest.mark.parametrize("alpha", [[0, 0], [0, 0, 0, 0], [0, "a", 0]])
def test_what_a_reference_allows_may_be_refused_beside_it(alpha: Json) -> None:
    data: Json = {"latency": {"kind": "blackbox", "alpha": alpha, "beta": [0, 0, 0]}}
    once, again = (
        [violation for violation in read(data, "Experiment").violations if "alpha" in violation.path] for _ in range(2)
    )
    assert once == again != []


def test_a_number_is_not_the_truth_value_that_python_takes_for_equal() -> None:
    for value, wrong in ((1, False), (True, True), (1.0, False), (0, True)):
        data: Json = {"cluster": {"instances": value}}
        assert (
            bool([violation for violation in read(data, "Experiment").violations if violation.path[:1] == ("cluster",)])
            is wrong
        )


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
    for number in range(2000):
        read({"seed": number, "cluster": {"instances": number + 1}}, "Experiment")
    assert 0 < len(_READ) <= 512


def test_a_default_may_be_a_short_form() -> None:
    experiment = load("quickstart", overrides=["workload.clients.0.session={}"])
    assert experiment == load("quickstart", overrides=["workload.clients.0.session={turns: 1}"])
    assert experiment.workload.clients[0].session is not None
