"""A plug point of one's own, outside the package: what four places say is followed everywhere."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from blis_tui import plugins
from blis_tui.base.errors import PolicyError
from blis_tui.model import PluginConfig, named_in
from blis_tui.model.keys import keys_of, plug_in
from blis_tui.model.plug_ins import PlugPoint, Registry, plugins_in, setting
from blis_tui.spec import plug_points
from blis_tui.spec.plug_points import PlugPointRow
from blis_tui.spec.shipped import SHIPPED
from blis_tui.spec.user_plugins import load_plugins
from docs import make_plugins

if TYPE_CHECKING:
    from blis_tui.base.source import Json

ROOT: Final = Path(__file__).parents[2]


class Fan(Protocol):
    """Says how fast a fan turns."""

    def speed(self, celsius: float) -> float:
        """Turns a second, for a temperature."""


FAN: Final = PlugPoint[[], Fan]("cluster.fan", "fan", Fan)
ROW: Final = PlugPointRow(
    point=FAN, schema="experiment", below=("cluster", "properties", "fan"), changes=("cluster.fan=NAME",)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """A record with a plug-in of that plug point."""

    fan: PluginConfig = plug_in("cluster.fan", "How fast the fan turns.", default={"kind": "linear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of the plug-in below."""

    slope: float = setting("Turns a second for each degree.", default=2.0, minimum=0)


@FAN.plugin("linear", "In proportion to the temperature.", Settings)
class Linear:
    """As warm, so fast."""

    def __init__(self, settings: Settings) -> None:
        self._slope = settings.slope

    def speed(self, celsius: float) -> float:
        """In proportion."""
        return self._slope * celsius


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug point in the table, its plug-in in the index, its mark where authors find it."""
    points = (*plug_points.POINTS, ROW)
    for module in (plug_points, make_plugins):
        monkeypatch.setattr(module, "POINTS", points)
    monkeypatch.setitem(SHIPPED, FAN.path, {"linear": __name__})
    monkeypatch.setattr(plugins, "FAN", FAN, raising=False)


SCRIPT: Final = f"""
from dataclasses import dataclass
from {__name__} import FAN

@FAN.plugin("still", "Never turns.")
class Still:
    def __init__(self, settings): pass
    def speed(self, celsius): return 0.0
"""


@pytest.mark.usefixtures("listed")
def test_its_plug_ins_are_found_made_and_told_apart(tmp_path: Path) -> None:
    (tmp_path / "still.py").write_text(SCRIPT)
    known = load_plugins([tmp_path / "still.py"])
    assert known.names(FAN.path) == ("linear", "still")
    assert known.create(FAN, "linear", {"slope": 3.0}).speed(10) == 30.0
    assert known.create(FAN, "still", {}).speed(10) == 0.0
    with pytest.raises(PolicyError, match="fan `linear` has no setting `slop`"):
        known.create(FAN, "linear", {"slop": 1.0})
    record = Cooling(fan=PluginConfig(kind="still"))
    (named,) = named_in(record)
    (used,) = known.used(*named)
    assert used.origin is not None
    assert (used.path, used.name, used.origin.name) == ("cluster.fan", "still", "still.py")


@pytest.mark.usefixtures("listed")
def test_the_schema_offers_them(tmp_path: Path) -> None:
    (tmp_path / "still.py").write_text(SCRIPT)
    node: dict[str, Json] = {"properties": {"kind": {}}, "allOf": [], "if": {}, "then": {}}
    cluster: dict[str, Json] = {"properties": {"fan": node}}
    before = {"$defs": {"cluster": cluster}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plug_points, "POINTS", [ROW])
        offered = plug_points.with_plugins("experiment", before, load_plugins([tmp_path / "still.py"]))  # type: ignore[arg-type]
    assert '"enum": ["linear", "still"]' in json.dumps(offered)
    definitions = offered["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["fan-linear"] == {
        "description": "In proportion to the temperature.",
        "type": "object",
        "properties": {
            "kind": {"description": "In proportion to the temperature.", "const": "linear"},
            "slope": {"description": "Turns a second for each degree.", "type": "number", "minimum": 0, "default": 2.0},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }


@pytest.mark.usefixtures("listed")
def test_the_page_has_its_protocol() -> None:
    (section,) = ["\n".join(make_plugins.section(ROW))]
    assert "`cluster.fan`: a fan, called with `settings`." in section
    assert "def speed(self, celsius: float) -> float:" in section
    assert "Turns a second, for a temperature." in section


def test_what_plugins_check_changes_and_where_it_sits() -> None:
    assert ROW.naming("still") == ("cluster.fan=still",)
    assert keys_of(Cooling)["fan"][0].point == FAN.path
    assert [plugin.name for plugin in Registry(plugins_in((sys.modules[__name__],))).of(FAN.path)] == ["linear"]


# ---- the table ----


def test_the_table_of_extensions_names_examples_that_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page[page.index("## What an extension touches") : page.index("## Changing results")]
    rows = re.findall(r"^\| (.+?) \| (\S+) \| (\d+) \| (\d+) \| `(.+?)` \|$", table, re.MULTILINE)
    assert len(rows) == 14
    for _, _, before, now, example in rows:
        assert int(now) <= int(before)
        assert (ROOT / example).is_file()
