"""The schemas as files for editors and other tools.

Exported schemas have a hover text with default and range for every key, because editors do not show these by
themselves. They have no ``$id``, so that copies in a folder refer to each other without a network.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from blis_tui.authoring.tree import range_of
from blis_tui.errors import InputError
from blis_tui.spec.places import data_root
from blis_tui.spec.scalars import flow
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.source import Json

_REFERENCE = re.compile(r'"\$ref": "([a-z]+\.schema\.json)')


def schema_files() -> dict[str, str]:
    """Return every schema: file name -> text.

    Raises:
        InputError: the installation is incomplete.
    """
    paths = sorted((data_root() / "schemas").glob("*.schema.json"))
    if not paths:
        raise InputError("no schemas are installed", help="the installation is incomplete")
    return {path.name: _annotated(path.read_text(encoding="utf-8")) for path in paths}


def with_references(name: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return a schema and all schemas that it refers to."""
    chosen: dict[str, str] = {}
    waiting = [name]
    while waiting:
        file = waiting.pop()
        if file not in chosen:
            chosen[file] = files[file]
            waiting += _REFERENCE.findall(files[file])
    return chosen


def _annotated(text: str) -> str:
    schema: dict[str, Json] = json.loads(text)
    del schema["$id"]
    _annotate(schema)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _annotate(node: Json) -> None:
    """Add a hover text to every property below the node."""
    if isinstance(node, list):
        for part in node:
            _annotate(part)
    elif isinstance(node, dict):
        properties = node.get("properties")
        for part in properties.values() if isinstance(properties, dict) else ():
            if isinstance(part, dict) and isinstance(about := part.get("description"), str):
                shape = as_map(next(iter(as_list(part.get("anyOf"))), part))  # beside null, where it drops the key
                default = shape.get("default")
                facts = [f"default `{flow(default)}`"] if default not in (None, [], {}, "") else []
                facts += [found] if (found := range_of(shape)) else []
                part["markdownDescription"] = about + (f"\n\n*{'; '.join(facts)}*" if facts else "")
        for part in list(node.values()):
            _annotate(part)
