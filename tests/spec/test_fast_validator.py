"""A sure yes is never wrong, and what ships gets one: jsonschema is the judge of both."""

from __future__ import annotations

import copy
import math
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from blis_tui.spec import schema as schemas
from blis_tui.spec.fast_validator import FastValidator
from blis_tui.spec.places import shipped_specs
from blis_tui.spec.read import read_document
from blis_tui.spec.schema import KINDS, schema, violations
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.source import Json

PATHS: Final = tuple(sorted(shipped_specs().rglob("*.yaml")))
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2**70, 1.0, 0.5, -0.0, 1e300, math.inf, math.nan),
    *("", "x", "x" * 300, "none", "blackbox", "constant", "blis/v1", [], [1], ["a", "a"], [1.0, 1], {}),
    *({"kind": "constant"}, {"kind": "x"}, {"kind": ["x"]}, {"": 1}, [[]], [{"a": 1}]),
)


def surely(data: Any, kind: str) -> bool:
    """As documents are asked about: what was allowed once is remembered, over all that is asked here."""
    sure, rules = schemas._fast_validator(kind.lower(), None), schema(kind.lower())
    said = sure.allows_document(data, rules)
    assert sure.allows_document(data, rules) is said
    return said


@cache
def judge(kind: str) -> Draft202012Validator:
    """Jsonschema, with nothing of ours but the files."""
    registry: Registry[Any] = Registry()
    for name in ("common", *map(str.lower, KINDS)):
        registry = registry.with_resource(f"{name}.schema.json", DRAFT202012.create_resource(schema(name)))
    return Draft202012Validator({"$ref": f"{kind.lower()}.schema.json"}, registry=registry)


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
    said = data.get("kind") if isinstance(data, dict) else None
    return said if isinstance(said, str) and said in KINDS else "Experiment"


@pytest.mark.parametrize("number", range(len(PATHS)), ids=[path.name for path in PATHS])
def test_what_ships_needs_no_jsonschema(number: int) -> None:
    data = shipped(number)
    assert isinstance(data, dict)
    assert surely(data, str(data["kind"]))
    assert judge(str(data["kind"])).is_valid(data)
    assert list(violations(data, str(data["kind"]), builtin())) == []


@settings(max_examples=700, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS.map(Random).map(mutated), st.sampled_from([None, None, None, *KINDS]))
def test_what_surely_follows_the_schemas_follows_them(data: Any, other: str | None) -> None:
    kind = other or kind_of(data)
    if surely(data, kind):
        assert list(judge(kind).iter_errors(data)) == []


def test_mutated_documents_are_of_both_kinds() -> None:
    found = [surely(data, kind_of(data)) for data in map(mutated, map(Random, range(400)))]
    assert 40 < sum(found) < 360


SMALL: Final = (*VALUES, 2, 3, "ab", ["ab"], {"ab": 1}, {"x": "ab"}, [1, True], {"x": 1, "ab": 0.5})
TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null", "fish", ["integer", "null"])
SIZES: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LIMITS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
PARTS: Final = ("additionalProperties", "propertyNames", "items", "if", "then", "else", "not")
OTHERS: Final[tuple[Any, ...]] = (True, False, {"type": "integer"}, {"maxLength": 1}, {"not": {}})


def drawn(random: Random, depth: int = 0) -> Any:
    """A part of a schema, with keywords that are known and others."""
    if depth > 3 or random.random() < 0.1:
        return random.choice([True, True, False, {}])
    node: dict[str, Any] = {}
    for _ in range(random.randint(1, 3)):
        match random.randrange(13):
            case 0:
                node["type"] = random.choice(TYPES)
            case 1:
                node["const"] = random.choice(SMALL)
            case 2:
                node["enum"] = random.choices(SMALL, k=random.randint(0, 5))
            case 3:
                node["properties"] = {name: drawn(random, depth + 1) for name in random.sample(["x", "ab", "kind"], 2)}
            case 4:
                node["required"] = random.sample(["x", "ab"], random.randint(0, 2))
            case 5:
                node[random.choice(SIZES)] = random.randint(0, 2)
            case 6:
                node[random.choice(LIMITS)] = random.choice([0, 1, 2, 1.5])
            case 7:
                node["pattern"] = random.choice(["^a", "b$", "x"])
            case 8:
                node["$ref"] = "#/$defs/other"
            case 9:
                node["uniqueItems"] = random.choice([True, False])
            case 10:
                node[random.choice(["allOf", "allOf", "anyOf"])] = [drawn(random, depth + 1) for _ in range(2)]
            case 11:
                doubtful = random.choice([{"not": drawn(random, depth + 1)}, {"multipleOf": 2}, {"type": "integer"}])
                node |= {"if": doubtful, random.choice(["then", "else"]): drawn(random, depth + 1)}
            case _:
                for name in random.sample(PARTS, random.randint(1, 4)):
                    node[name] = drawn(random, depth + 1)
    return node


@settings(max_examples=700, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS.map(Random))
def test_of_any_schema_a_sure_yes_is_right(random: Random) -> None:
    other: Any = random.choice(OTHERS)
    node = drawn(random)
    whole = {**node, "$defs": {"other": other}} if isinstance(node, dict) else node

    def resolve(reference: str) -> tuple[Json, FastValidator]:
        assert reference == "#/$defs/other"
        return other, sure

    sure, judging = FastValidator(resolve), Draft202012Validator(whole)
    for data in (one for one in random.sample(SMALL, 12) if sure.allows(one, whole)):
        assert judging.is_valid(data)
