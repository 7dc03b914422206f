"""Templates of documents: short ones, or with every key explained and optional keys commented out.

``##`` starts an explanation, ``# `` a disabled key, so that an editor's "toggle comment" enables keys.
"""

from __future__ import annotations

import textwrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.input_files import real_path
from blis_tui.base.scalars import flow
from blis_tui.spec.authoring.key_tree import Key, root
from blis_tui.spec.library import schema_path, suffix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from blis_tui.base.source import Json

_WIDTH: Final = 100
_LIVE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"Model": ("config",), "Study": ("axes", "constraints"), "Workload": ("requests", "rate_per_s", "clients")}
)
"""Keys that a useful document needs, although its schema (which has alternatives) does not require them."""

_COMMON: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Experiment": ("seed", "policy", "cluster", "engine", "expect"),
        "Hardware": ("watts",),
        "Policy": ("scheduling", "batching", "routing", "admission"),
        "Study": ("objectives", "seeds"),
        "Workload": ("trace",),
    }
)
"""Optional keys to know first."""

_INTRODUCTION: Final = (
    "Lines with `##` explain the keys. Lines with a single `#` are optional keys that are off: remove the `# ` "
    "to set one. `blis-tui explain KEY` says more about a key."
)


def template(kind: str, name: str, schema: str) -> str:
    """Return a valid document of a kind; ``schema`` is the reference in its modeline."""
    tree = root(kind)
    lines = [f"# yaml-language-server: $schema={schema}"]
    lines += [f"# {line}" for line in textwrap.wrap(f"{kind}: {tree.description}", _WIDTH - 2)]
    lines += [f"# {line}" for line in textwrap.wrap(_INTRODUCTION, _WIDTH - 2)]
    header: dict[str, Json] = {"apiVersion": "blis/v1", "kind": kind, "metadata": {"name": name}}
    for child in tree.children.values():
        if child.name in header:
            value = header[child.name]
        else:
            value = sample(child) if child.required or child.name in _LIVE.get(kind, ()) else None
            lines.append("")
        lines += _entry(child, value, live=value is not None)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def short(kind: str, name: str, schema: str) -> str:
    """Return a valid document with the required keys, and the most important optional ones disabled."""
    tree = root(kind)
    more = f"`blis-tui spec new {kind.lower()} --all` shows every key; `blis-tui explain KEY` says what one means."
    lines = [f"# yaml-language-server: $schema={schema}", f"# {more}", "apiVersion: blis/v1", f"kind: {kind}"]
    lines += ["metadata:", f"  name: {name}", '  description: ""']
    for child in tree.children.values():
        live = child.required or child.name in _LIVE.get(kind, ())
        if child.name in ("apiVersion", "kind", "metadata") or not (live or child.name in _COMMON.get(kind, ())):
            continue
        value = sample(child)
        inline = f"{child.name}: {flow(value)}"
        body = [line for line in _body(child, value) if not line.lstrip().startswith("#")]
        said = child.description.partition(". ")[0].rstrip(".") + "."
        lines += ["", *(f"# {line}" for line in textwrap.wrap(said, _WIDTH - 2))]
        lines += body if live else [f"# {inline}"] if len(inline) <= _WIDTH else [f"# {line}" for line in body]
    return "\n".join(lines) + "\n"


def _entry(key: Key, value: Json, *, live: bool) -> list[str]:
    """Return a key with its explanation; commented out unless it is live."""
    lines = [] if key.name in ("apiVersion", "kind", "metadata") else _explained(key)
    body = _body(key, value if live else sample(key))
    return lines + (body if live else [f"# {line}" for line in body])


def _explained(key: Key) -> list[str]:
    facts = [key.type if key.type not in ("word", "map") else "", key.unit, key.range]
    facts.append(
        "required"
        if key.required
        else f"default {flow(key.default)}"
        if key.has_default and key.default not in ([], {})
        else ""
    )
    listed = "; ".join(fact for fact in facts if fact)
    prose = key.description + (f" ({listed})" if listed else "")
    if key.document:
        prose += f" Names: `blis-tui spec list --kind {key.document.lower()}`."
    lines = textwrap.wrap(prose, _WIDTH - 10)
    kinds = next((child.choices for child in key.children.values() if key.variants and child.choices), key.choices)
    if any(choice.description for choice in kinds):
        settings = {one.value: ", ".join(one.keys) for one in key.variants}
        for choice in kinds:
            own = f" {{{settings[choice.value]}}}" if settings.get(choice.value) else ""
            about = f": {choice.description}" if choice.description else ""
            lines += textwrap.wrap(
                f"{choice.value}{own}{about}", _WIDTH - 12, initial_indent="- ", subsequent_indent="  "
            )
    elif len(kinds) > 1 and key.type == "word":
        lines += textwrap.wrap("One of " + ", ".join(choice.value for choice in kinds) + ".", _WIDTH - 10)
    return [f"## {line}" for line in lines]


def _body(key: Key, value: Json) -> list[str]:
    """Return ``key: value``; a map with known keys becomes a block with all of them."""
    if isinstance(value, dict) and key.children and not key.variants:
        return [f"{key.name}:", *_indented(_children(key, value))]
    if key.is_list and key.children and isinstance(value, list) and value and isinstance(value[0], dict):
        entry = list(_indented(_children(key, value[0])))
        first = next(at for at, line in enumerate(entry) if not line.lstrip().startswith("#"))
        explanation, rest = entry[:first], entry[first:]
        # The explanation of an entry's first key stands above the dash.
        return [
            f"{key.name}:",
            *explanation,
            f"  - {rest[0].lstrip()}",
            *(f"  {line}" for line in rest[1:]),
        ]
    return [f"{key.name}: {flow(value)}"]


def _children(key: Key, value: dict[str, Json]) -> Iterator[str]:
    ordered = sorted(key.children.values(), key=lambda child: child.name not in value)
    for child in ordered if key.is_list else key.children.values():
        given = value.get(child.name)
        live = child.name in value or child.required
        yield from _entry(child, sample(child) if live and given is None else given, live=live)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def sample(key: Key) -> Json:
    """Return a valid value of a key: its example if the author must choose, else its default."""
    if key.has_default and not key.required and key.default not in (None, [], {}):
        return key.default
    if key.examples:
        return key.examples[0]
    if key.has_default:
        return _all_defaults(key) if key.default == {} else key.default
    if key.choices:
        return key.choices[0].value
    if key.children and not key.variants:
        return _all_defaults(key)
    empty: Json = [] if key.is_list else {} if key.type.startswith("map") else 1
    return next((value for word, value in _PLACEHOLDERS.items() if key.type.endswith(word)), empty)


_PLACEHOLDERS: Final[Mapping[str, Json]] = MappingProxyType({"text": "text", "null": None, "false": True})
"""Last word of a type -> an example value, for keys without default and example."""


def _all_defaults(key: Key) -> dict[str, Json]:
    """Return a map with its required keys and those that have a default."""
    return {child.name: sample(child) for child in key.children.values() if child.required or child.has_default}


def file_name(kind: str, name: str) -> str:
    """Return the file name of a document."""
    return name + suffix(kind)


def schema_reference(kind: str, folder: Path) -> tuple[str, bool]:
    """Return the schema reference of a document in ``folder``, and whether it is the author's own copy.

    The schema is searched in ``schemas/`` of the folder and its parents. Without one, the reference is to the file in
    this package, which is valid on this machine only.
    """
    shipped = real_path(schema_path(kind.lower()))
    folder = real_path(folder)
    for up, parent in enumerate((folder, *folder.parents)):
        own = parent / "schemas" / shipped.name
        if own.is_file():
            return "../" * up + f"schemas/{shipped.name}", True
    return shipped.as_uri(), False
