"""The parts of the schemas that follow from the plug-ins."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry as Resources
from referencing.jsonschema import DRAFT202012

from blis_tui.model.plug_ins import NoSettings, Plugin, Registry, setting
from blis_tui.spec.authoring.project import schema_files
from blis_tui.spec.library import schema_path
from blis_tui.spec.plug_points import BY_PATH, with_plugins
from blis_tui.spec.reader import complete, read
from blis_tui.spec.schema import schema
from blis_tui.spec.shipped import builtin
from docs.make_schemas import NAMES, catalog, extending, published

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[3]
HOME: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Homepage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    least: int = setting("Fewest.", minimum=1)
    share: float = setting("How much.", default=0.5, minimum=0, maximum=1)
    only: bool | None = setting("Perhaps.", default=None)


ADDED = Plugin("policy.routing", "constant", "A new one.", Settings, Settings, __name__)
MORE = Registry([*builtin().plugins, ADDED])


@pytest.mark.parametrize("name", NAMES)
def test_the_files_say_what_the_plugins_say(name: str) -> None:
    assert schema_path(name).read_text(encoding="utf-8") == published(name), "make docs"


def in_an_editor(document: object) -> list[str]:
    """The paths at which an editor marks an experiment, by the files that are exported for editors."""
    files: Resources[bool | Mapping[str, object]] = Resources()
    for name, text in schema_files().items():
        files = files.with_resource(name, DRAFT202012.create_resource(json.loads(text)))
    check = Draft202012Validator({"$ref": "experiment.schema.json"}, registry=files)
    return [error.json_path for error in check.iter_errors(document)]


def test_an_editor_takes_nulls_that_drop_inherited_keys_and_no_others() -> None:
    head = {"apiVersion": "blis/v1", "kind": "Experiment", "metadata": {"name": "child"}}
    drops: dict[str, object] = {
        "horizon_us": None,
        "engine": {"kv_blocks": None, "lora": {"max_cpu_loras": None}},
        "workload": {"rate_per_s": None, "trace": {"slice": None}},
        "policy": {"preemption": None, "routing": {"scorers": None}, "tenant_budgets": {"fractions": {"acme": None}}},
        "cases": {"small": {"engine.kv_blocks": None}},
        "matrix": {"cluster.instances": [1, 2]},
    }
    assert in_an_editor({**head, "extends": "quickstart", **drops}) == []
    assert in_an_editor({**head, "extends": None}) != []
    assert in_an_editor({**head, "extends": "quickstart", "cases": None}) == ["$.cases"]  # are not inherited
    assert in_an_editor({**head, "model": "m", "hardware": "h", "workload": "w", "engine": {"kv_blocks": None}}) == [
        "$.engine.kv_blocks"
    ]
    client = {"id": "a", "input_tokens": 1, "output_tokens": 1, "share": None}  # lists replace: nothing is inherited
    assert in_an_editor({**head, "extends": "quickstart", "workload": {"clients": [client]}}) != []
    assert in_an_editor({**head, "extends": "quickstart", "engine": {"kv_blocks": "many"}}) != []
    assert (schema_path("latency").parent / "extending.schema.json").read_text(encoding="utf-8") == extending()


def references(node: object) -> "Iterator[str]":
    """Yield each `$ref` of a schema."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from references(value)
    if isinstance(node, dict) and isinstance(to := node.get("$ref"), str):
        yield to


def test_every_reference_leads_to_a_part_of_a_file() -> None:
    """Editors say of each that leads nowhere that the whole document has a fault."""
    folder = schema_path("latency").parent
    contents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.schema.json")}

    for name, text in contents.items():
        for to in references(text):
            file, _, pointer = to.partition("#")
            part = contents[file or name]
            for step in filter(None, pointer.split("/")):
                assert step in part, f"{name}: {to}"
                part = part[step]


def test_each_has_an_address_by_which_the_others_find_it() -> None:
    """Where the project is at home; copies in a folder have none, so that they find each other there."""
    by_address: Resources[bool | Mapping[str, object]] = Resources()
    for name in NAMES:
        contents = schema(name)
        assert contents["$id"] == f"{HOME}/raw/HEAD/schemas/{schema_path(name).name}"
        by_address = by_address.with_resource(str(contents["$id"]), DRAFT202012.create_resource(contents))
    check = Draft202012Validator({"$ref": f"{HOME}/raw/HEAD/schemas/experiment.schema.json"}, registry=by_address)
    document = yaml.safe_load((ROOT / "specs/experiments/disaggregation.blis.yaml").read_text(encoding="utf-8"))
    assert list(check.iter_errors(document)) == []
    document["policy"] = {"routing": {"kind": "no-such"}}  # what only the policy's schema knows
    assert [error.json_path for error in check.iter_errors(document)] == ["$.policy.routing.kind"]
    assert [name for name, text in schema_files().items() if "$id" in json.loads(text)] == []


def test_a_catalog_of_schemas_knows_documents_by_their_names() -> None:
    """What SchemaStore asks of an entry, and that it is for these files alone."""
    text = (ROOT / "docs/schemastore.json").read_text(encoding="utf-8")
    assert text == catalog(), "make docs"
    shipped = sorted((ROOT / "specs").rglob("*.yaml"))
    for entry in json.loads(text)["schemas"]:
        assert entry.keys() == {"name", "description", "fileMatch", "url"}
        file = entry["url"].removeprefix(f"{HOME}/raw/HEAD/")
        title = json.loads((ROOT / file).read_text(encoding="utf-8"))["title"]
        of_kind = [path for path in shipped if f"\nkind: {title}\n" in path.read_text(encoding="utf-8")]
        assert [path for path in shipped if any(path.match(one) for one in entry["fileMatch"])] == of_kind != []


@pytest.mark.parametrize("point", BY_PATH)
def test_a_plugin_that_goes_takes_its_parts_along(point: str) -> None:
    gone = builtin().of(point)[-1]
    left = Registry(plugin for plugin in builtin().plugins if plugin is not gone)
    name = BY_PATH[point].schema
    without = with_plugins(name, schema(name), left)
    assert without != schema(name)
    elsewhere = any(plugin.name == gone.name and plugin.path != point for plugin in builtin().plugins)
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
        return [violation.keyword for violation in read(document, "Policy", MORE).violations]  # type: ignore[arg-type]

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
