"""Messages for maps in place of other documents: a name in disguise, or a document that lacks most of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.spec.diagnostics import about
from blis_tui.spec.library import names
from blis_tui.spec.pools import SLOTS, slot_of
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.schema import Violation
    from blis_tui.spec.source import DataPath, Document, Json

_NEEDS: Final = {
    "Hardware": ("peak_tflops",),
    "Model": ("config", "config_file"),
    "Workload": ("clients", "trace"),
    "Policy": (),
}
"""Keys of which a whole document of a kind has one."""
_NAMES: Final = ("kind", "name", "id", "type", "use", "from", "base", "model", "hardware", "gpu", "workload", "policy")
"""Keys with which a name may be wrapped in a map."""


def of_slots(document: Document, found: Sequence[Violation]) -> tuple[list[Diagnostic], list[Violation]]:
    """Return one diagnostic for each map in place of a document that is none, and the other violations."""
    diagnostics: list[Diagnostic] = []
    rest = list(found)
    for slot in dict.fromkeys(slot_of(one.path) for one in found):
        value = document.get(*slot) if slot else None
        if not isinstance(value, dict):
            continue
        kind = SLOTS[str(slot[-1])]
        if name := _named(document, kind, value):
            diagnostics.append(_disguised(document, slot, value, name))
            rest = [one for one in rest if one.path[: len(slot)] != slot]
        elif len(missing := [one for one in rest if one.keyword == "required" and one.path == slot]) > 1:
            diagnostics.append(_incomplete(document, slot, kind, missing))
            rest = [one for one in rest if one not in missing]
    return diagnostics, rest


def _named(document: Document, kind: str, value: dict[str, Json]) -> str:
    """Return the name or path that a map only wraps; empty = it wraps none."""
    glued = dict(key.split(":", 1) for key, text in value.items() if ":" in key and text is None)  # `{name:h100}`
    found = {key: text for key in _NAMES if isinstance(text := {**value, **glued}.get(key), str) and text != kind}
    known = names(kind, document.source.directory)
    if name := next((text for text in found.values() if text in known), ""):
        return name
    if any(key in value for key in _NEEDS[kind]):
        return ""
    own = as_map(value.get("metadata")).get("name")
    if isinstance(own, str) and not value.keys() - {"metadata", "kind", "apiVersion"}:
        return own
    return found.get("kind") or found.get("name") or found.get("id") or ""


def _disguised(document: Document, slot: DataPath, value: dict[str, Json], name: str) -> Diagnostic:
    message = f"`{slot[-1]}` takes a name, a path or a whole document, not a map around a name"
    hint = f"write `{slot[-1]}: {name[:60]}`"
    if len(value) > 1:
        hint += "; keys of it can be changed by `--set`, `cases` or an experiment that `extends` this one"
    return about(document, slot, "BLIS1003", message, hint=hint)


def _incomplete(document: Document, slot: DataPath, kind: str, missing: Iterable[Violation]) -> Diagnostic:
    keys = [f"`{one.message.split(chr(39))[1]}`" for one in missing]
    message = f"`{slot[-1]}` lacks the keys {', '.join(keys[:-1])} and {keys[-1]}"
    hint = f"a {kind} document has them all; to use an existing one, write its name, such as `{slot[-1]}: "
    return about(document, slot, "BLIS1002", message, key=True, hint=f"{hint}{_example(kind)}`")


def _example(kind: str) -> str:
    return {"Hardware": "h100", "Model": "qwen3-14b", "Workload": "chatbot"}.get(kind, "vllm-v1")
