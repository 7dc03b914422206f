"""A key that is defined once takes effect everywhere, here for classes outside the package."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest
from jsonschema import Draft202012Validator

from blis_tui.base.errors import InputError
from blis_tui.model import PluginConfig
from blis_tui.model.keys import (
    DocumentKey,
    amount,
    choice,
    document_key,
    entry,
    group_of,
    key,
    keys_of,
    part,
    plug_in,
    variants,
)
from blis_tui.spec.build import Part, decode
from docs.make_schemas import map_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Fan:
    """Moves air."""

    watts: float = key("Power in watts.", minimum=0)


class Water:
    """Of ``medium: water``."""

    litres = document_key(int, "How much of it.", required=True, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """How a machine is kept cool."""

    target_c: int = key("Target in degrees.", default=40, minimum=0, maximum=100)
    label: str = key("What reports call it.", absent="", maxLength=20)
    medium: str = variants("What carries heat away.", {"air": ("Air.", None), "water": ("Water.", Water)}, absent="air")
    litres: int = 0
    mode: str = choice("When fans run.", {"always": "All the time.", "hot": "Above the target."}, default="hot")
    limit_us: int | None = amount("How long; `none` = for ever.", ["none"], default="none", minimum=1)
    fans: tuple[Fan, ...] = part("Its fans.", (Fan,), absent=(), maxItems=4)
    spare: Fan | None = part("One more.", Fan, absent=None)
    shares: Mapping[str, int] = part(
        "By zone.", {"in": entry(int, "Inside."), "out": entry(int, "Outside.")}, absent={}
    )
    router: PluginConfig | None = plug_in("policy.routing", "Who decides.", absent=None)
    rack: ClassVar[DocumentKey] = group_of("The rack.", required=True)
    units: int = key("Its height.", group="rack", minimum=1)
    rack_name: str | None = key("Its name.", name="name", group="rack", absent=None)
    site: ClassVar[DocumentKey] = document_key(str, "Where it stands.", required=True)


RACK = {"rack": {"units": 2}, "site": "here"}
FULL = {"target_c": 40, "mode": "hot", "limit_us": "none", **RACK}


def cooling(**more: object) -> Cooling:
    return decode(Cooling, Part({**FULL, **more}, "cooling"))


def test_defaults_are_those_of_the_record() -> None:
    assert cooling() == Cooling(units=2)
    assert Cooling(units=2).limit_us is None
    with pytest.raises(FrozenInstanceError):
        cooling().units = 3  # type: ignore[misc]


def test_everything_that_a_document_can_say_is_read() -> None:
    found = cooling(
        label="x",
        medium={"kind": "water", "litres": 3},
        limit_us=5,
        fans=[{"watts": 2}, {"watts": 3.5}],
        spare={"watts": 1.0},
        shares={"in": 1, "out": 2},
        router={"kind": "weighted", "share": 0.5},
        rack={"units": 4, "name": "r"},
    )
    assert found == Cooling(
        label="x",
        medium="water",
        limit_us=5,
        fans=(Fan(watts=2.0), Fan(watts=3.5)),
        spare=Fan(watts=1.0),
        shares={"in": 1, "out": 2},
        router=PluginConfig(kind="weighted", settings={"share": 0.5}),
        units=4,
        rack_name="r",
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"target_c": None}, "`cooling.target_c` is not a whole number"),
        ({"target_c": True}, "`cooling.target_c` is not a whole number"),
        ({"mode": 1}, "`cooling.mode` is not text"),
        ({"limit_us": "auto"}, "`cooling.limit_us` is not a whole number"),
        ({"fans": {}}, "`cooling.fans` is not a list"),
        ({"fans": [{"watts": 1}, {"watts": "much"}]}, "`cooling.fans.1.watts` is not a number"),
        ({"fans": [{}]}, "`cooling.fans.0.watts` is missing"),
        ({"spare": []}, "`cooling.spare` is not a map"),
        ({"shares": {"in": 0.5}}, "`cooling.shares.in` is not a whole number"),
        ({"medium": "water"}, "`cooling.medium` is not a map"),
        ({"rack": None}, "`cooling.rack` is not a map"),
        ({"rack": {}}, "`cooling.rack.units` is missing"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(more: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        cooling(**more)
    assert caught.value.message == f"not a resolved experiment: {message}"


@pytest.mark.parametrize("gone", [name for name in FULL if name != "site"])  # which no record holds
def test_what_the_loader_fills_in_must_be_there(gone: str) -> None:
    rest = {name: value for name, value in FULL.items() if name != gone}
    with pytest.raises(InputError, match=f"`cooling.{gone}` is missing"):
        decode(Cooling, Part(rest, "cooling"))


def test_what_follows_from_something_else_is_given() -> None:
    assert decode(Cooling, Part(FULL, ""), litres=7, target_c=1) == Cooling(litres=7, target_c=1, units=2)


# ---- the schema ----


def test_the_schema_says_the_same() -> None:
    made, definitions = map_of(Cooling)
    assert made["required"] == ["rack", "site"]
    properties = made["properties"]
    assert isinstance(properties, dict)
    assert [*properties] == [
        *("target_c", "label", "medium", "mode", "limit_us", "fans", "spare", "shares", "router", "rack", "site")
    ]
    assert properties["target_c"] == {
        "description": "Target in degrees.",
        "type": "integer",
        "minimum": 0,
        "maximum": 100,
        "default": 40,
    }
    assert properties["mode"] == {
        "description": "When fans run.",
        "enum": ["always", "hot"],
        "enumDescriptions": ["All the time.", "Above the target."],
        "default": "hot",
    }
    assert properties["rack"] == {
        "description": "The rack.",
        "type": "object",
        "properties": {
            "units": {"description": "Its height.", "type": "integer", "minimum": 1},
            "name": {"description": "Its name.", "type": "string"},
        },
        "required": ["units"],
        "additionalProperties": False,
    }
    assert definitions["medium-water"] == {
        "description": "Water.",
        "type": "object",
        "properties": {
            "kind": {"description": "Water.", "const": "water"},
            "litres": {"description": "How much of it.", "type": "integer", "minimum": 1},
        },
        "required": ["kind", "litres"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("more", "valid"),
    [
        ({}, True),
        ({"target_c": 101}, False),
        ({"medium": "air"}, True),
        ({"medium": "water"}, False),  # water needs an amount
        ({"medium": {"kind": "water", "litres": 1}}, True),
        ({"medium": {"kind": "air", "litres": 1}}, False),
        ({"mode": "never"}, False),
        ({"limit_us": "none"}, True),
        ({"limit_us": "auto"}, False),
        ({"limit_us": 0}, False),
        ({"fans": [{"watts": 1}] * 5}, False),
        ({"shares": {"in": 1, "up": 1}}, False),
        ({"rack": {"units": 1, "depth": 1}}, False),
        ({"unknown": 1}, False),
    ],
)
def test_the_schema_takes_what_the_keys_allow(more: dict[str, object], *, valid: bool) -> None:
    made, definitions = map_of(Cooling)
    validator = Draft202012Validator({**made, "$defs": definitions})
    assert validator.is_valid({**RACK, **more}) is valid


def test_keys_come_in_the_order_of_the_class() -> None:
    assert [*keys_of(Water)] == ["litres"]
    assert [*keys_of(Cooling)][:3] == ["target_c", "label", "medium"]
    assert keys_of(Cooling)["site"][0].is_required
    assert not keys_of(Cooling)["spare"][0].is_required
