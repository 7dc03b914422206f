"""The parts of the schemas that follow from the plug-ins."""

import json
from dataclasses import dataclass

import pytest

from blis_tui.plug_points import BY_PATH
from blis_tui.registry import NoSettings, Plugin, Registry, setting
from blis_tui.shipped import builtin
from blis_tui.spec.branches import with_plugins
from blis_tui.spec.library import schema_path
from blis_tui.spec.schema import complete, schema, violations
from docs.make_schemas import NAMES, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    least: int = setting("Fewest.", minimum=1)
    share: float = setting("How much.", default=0.5, minimum=0, maximum=1)
    only: bool | None = setting("Perhaps.", default=None)


ADDED = Plugin("policy.routing", "constant", "A new one.", Settings, Settings, __name__)
MORE = Registry([*builtin().plugins, ADDED])


@pytest.mark.parametrize("name", NAMES)
def test_the_files_say_what_the_plugins_say(name: str) -> None:
    assert schema_path(name).read_text(encoding="utf-8") == text_of(name), "make docs"


@pytest.mark.parametrize("point", BY_PATH)
def test_a_plugin_that_goes_takes_its_parts_along(point: str) -> None:
    gone = builtin().of(point)[-1]
    left = Registry(plugin for plugin in builtin().plugins if plugin is not gone)
    name = BY_PATH[point].schema
    without = with_plugins(name, schema(name), left)
    assert without != schema(name)
    elsewhere = any(one.name == gone.name and one.path != point for one in builtin().plugins)
    assert f'"const": "{gone.name}"' not in json.dumps(without) or elsewhere
    assert with_plugins(name, without, builtin()) != without


def test_a_new_plugin_moves_nothing_and_is_known_by_its_settings() -> None:
    before, after = schema("policy"), with_plugins("policy", schema("policy"), MORE)
    definitions = after["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["routing-constant"] == {
        "description": "A new one.",
        "type": "object",
        "properties": {
            "kind": {"description": "A new one.", "const": "constant"},
            "least": {"description": "Fewest.", "type": "integer", "minimum": 1},
            "share": {"description": "How much.", "type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
            "only": {"description": "Perhaps.", "type": "boolean"},
        },
        "required": ["kind", "least"],
        "additionalProperties": False,
    }
    assert with_plugins("policy", after, builtin()) == before


def test_documents_are_checked_and_completed_with_it() -> None:
    def found(routing: dict[str, object]) -> list[str]:
        document = {"apiVersion": "blis/v1", "kind": "Policy", "metadata": {"name": "x"}, "routing": routing}
        return [one.keyword for one in violations(document, "Policy", MORE)]  # type: ignore[arg-type]

    assert found({"kind": "constant", "least": 3}) == []
    assert found({"kind": "constant", "least": 0}) == ["minimum"]
    assert found({"kind": "constant"}) == ["required"]
    assert found({"kind": "constant", "least": 1, "most": 1}) == ["additionalProperties"]
    completed = complete({"routing": {"kind": "constant", "least": 3.0}}, "Policy", MORE)
    assert isinstance(completed, dict)
    assert completed["routing"] == {"kind": "constant", "least": 3, "share": 0.5}


def test_a_step_time_model_without_coefficients_has_no_documents_of_them() -> None:
    model = Plugin("latency", "fixed", "Always the same.", NoSettings, NoSettings, __name__)
    more = Registry([*builtin().plugins, model])
    assert with_plugins("latency", schema("latency"), more) == schema("latency")
    assert '"fixed"' in json.dumps(with_plugins("experiment", schema("experiment"), more))
