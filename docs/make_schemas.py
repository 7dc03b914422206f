"""The parts of ``schemas/`` that follow from the plug-ins, written into the files.

``make docs`` writes them; a test fails when they are stale.
"""

from __future__ import annotations

import json
import sys

from blis_tui.authoring.project import write_tree
from blis_tui.plug_points import POINTS
from blis_tui.shipped import builtin
from blis_tui.spec.branches import with_plugins
from blis_tui.spec.library import schema_path
from blis_tui.spec.schema import schema

NAMES = tuple(dict.fromkeys(("latency", *(row.schema for row in POINTS))))
"""The schemas that name plug-ins."""


def text_of(name: str) -> str:
    """What the file of a schema must contain."""
    return json.dumps(with_plugins(name, schema(name), builtin()), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    folder = schema_path("latency").parent
    write_tree(folder, {f"{name}.schema.json": text_of(name) for name in NAMES}, replace=True)
    sys.stderr.write(f"wrote {len(NAMES)} schemas to {folder}\n")
