"""Explains keys of documents, found by dotted path or by word, as text or as plain data."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import words_of
from blis_tui.base.errors import BlisError
from blis_tui.base.scalars import flow
from blis_tui.base.text import described, printable
from blis_tui.base.units import in_words, plural
from blis_tui.spec.authoring.key_tree import DISCRIMINATORS, Key, every_key, root
from blis_tui.spec.hints import KEYS
from blis_tui.spec.schema import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model.plug_ins import Registry


_WIDTH: Final = 100


_NEAR: Final = 5


_KINDS_WITH_OWN: Final = ("Experiment", "Latency", "Study")
"""The kinds of document with unique keys; an experiment contains the keys of all others."""


_MOST_SHOWN: Final = 12


class UnknownKeyError(BlisError):
    """No key has that path; the help names the nearest ones."""


def look_up(path: str, plugins: Registry | None = None) -> tuple[str, list[Key]]:
    """Return the kind of document and the keys at a dotted path.

    ``engine.kv_blocks`` is a path in an experiment, ``Hardware.mfu`` one in a document of that kind, ``Hardware`` the
    document itself. List positions may be left out. Several keys are returned if the key's meaning depends on a
    ``kind`` beside it.

    Raises:
        UnknownKeyError: there is no such key.
    """
    steps = [step for step in path.split(".") if step]
    named = {kind.lower(): kind for kind in KINDS}
    kind = "Experiment"
    # `workload` is a key of an experiment, `Workload` the kind of document.
    if steps and steps[0].lower() in named and (steps[0] in KINDS or steps[0] not in root(kind, plugins).children):
        kind = named[steps.pop(0).lower()]
    steps = [step for step in steps if not step.isdecimal()]
    found = [root(kind, plugins)]
    for at, step in enumerate(steps):
        below = [match for key in found for match in _below(key, step)]
        if not below:
            raise _unknown(path, kind, steps[:at], step, found, plugins)
        found = below
    return kind, found


def _below(key: Key, step: str) -> list[Key]:
    """Return the keys that a step leads to: a child, the same child in several variants, or a variant by name."""
    if step in key.children and (step in ("kind", "step_time") or not any(step in one.keys for one in key.variants)):
        return [key.children[step]]
    in_variants = [one.keys[step] for one in key.variants if step in one.keys]
    if in_variants:
        return in_variants
    return [key.as_variant(one) for one in key.variants if one.value == step]


def _unknown(
    path: str, kind: str, done: list[str], step: str, found: list[Key], plugins: Registry | None
) -> UnknownKeyError:
    where = f"`{'.'.join(done)}`" if done else f"a document of kind {kind}"
    names = sorted({name for key in found for name in key.names()})
    near = get_close_matches(step, names, n=1, cutoff=0.6) or [name for name in names if name.startswith(step)]
    same = _elsewhere(step, plugins)
    if near:
        prefix = () if kind == "Experiment" else (kind,)
        paths = ["`" + ".".join((*prefix, *done, name)) + "`" for name in near[:_NEAR]]
        hint = f"did you mean {' or '.join(paths)}?"
    elif same:
        hint = "did you mean " + " or ".join(f"`{one}`" for one in same) + "?"
    elif names:
        hint = "known keys are " + ", ".join(f"`{name}`" for name in names)
    else:
        hint = f"{where} has no keys below it"
    return UnknownKeyError(f"{where} has no key `{step[:60]}`" + (f" (in `{path[:80]}`)" if done else ""), help=hint)


def _elsewhere(step: str, plugins: Registry | None) -> list[str]:
    """Return the paths anywhere that end with the key, or with the nearest one."""
    every: dict[str, list[str]] = {}
    for kind in KINDS:
        for key in root(kind, plugins).walk():
            shown = key.shown(kind)
            if key.path and shown not in every.setdefault(key.name, []):
                every[key.name].append(shown)
    near = [step] if step in every else get_close_matches(step, sorted(every), n=1, cutoff=0.75)
    paths = every.get(near[0], []) if near else []
    # A key may occur both in a document and in the experiment that contains it; prefer the path for `--set`.
    short = [one for one in paths if one[0].islower()] or paths
    return [one for one in short if not _is_echo(one, short)][:_NEAR]


def is_among(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is one of these keys, or an echo of one."""
    return any(path == other or path.endswith(f".{other}") for other in paths)


def _is_echo(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path repeats one of these keys at a deeper level, like a pool's `engine` keys."""
    return any(path.endswith(f".{other}") for other in paths)


def as_data(kind: str, keys: Iterable[Key]) -> Json:
    """Return the description of the keys as plain data."""
    found: list[Json] = [_data(kind, key) for key in keys]
    return found[0] if len(found) == 1 else found


def _data(kind: str, key: Key) -> dict[str, Json]:
    data: dict[str, Json] = {
        "kind": kind,
        "path": key.dotted,
        "type": key.type,
        "unit": key.unit,
        "required": key.required,
        "range": key.range,
        "description": key.description,
        "only_for_kind": key.only,
        "choices": [{"value": one.value, "description": one.description} for one in key.choices],
        "examples": list(key.examples),
        "keys": list(key.names()),
    }
    if key.has_default:
        data["default"] = key.default
    return data


def as_text(kind: str, keys: list[Key]) -> str:
    """Return the description of the keys as text."""
    return "\n\n".join(_text(kind, key) for key in keys) + "\n"


def _text(kind: str, key: Key) -> str:
    title = key.dotted or kind
    lines = [f"{title}" + (f"  (when kind is `{key.only}`)" if key.only else "")]
    lines += textwrap.wrap(key.description, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    facts = {
        "document": kind if key.path else "",
        "type": key.type,
        "unit": key.unit,
        "default": flow(key.default) if key.has_default else "none; the key is required" if key.required else "",
        "range": key.range,
        "examples": "  or  ".join(flow(one) for one in key.examples),
    }
    lines.append("")
    lines += [f"  {name:<9} {text}" for name, text in facts.items() if text]
    if key.choices:
        lines += ["", "  values", *described((one.value, one.description) for one in key.choices)]
    if key.children or key.variants:
        lines += ["", "  keys", *described(_rows(key))]
    return "\n".join(lines)


def _rows(key: Key) -> list[tuple[str, str]]:
    rows = [(child.name, child.description) for child in key.children.values()]
    for variant in key.variants:
        rows += [
            (name, f"({variant.value}) {child.description}")
            for name, child in variant.keys.items()
            if name not in key.children
        ]
    return rows


def overview(kind: str, plugins: Registry | None = None) -> str:
    """Return the tree of all keys of a kind of document, one per line."""
    return "\n".join([f"{kind}: {root(kind).description}", *_tree(root(kind, plugins), 0)]) + "\n"


def _tree(key: Key, depth: int) -> list[str]:
    lines: list[str] = []
    indent = "  " * (depth + 1)
    for child in key.children.values():
        mark = "required" if child.required else f"[{flow(child.default)}]" if child.has_default else ""
        known = "|".join(one.value for one in child.choices)
        about = " ".join(part for part in (child.type if child.type != "word" else known, child.unit, mark) if part)
        lines.append(f"{indent}{child.name}: {about}")
        if not child.document:  # the other document has its own tree
            lines += _tree(child, depth + 1)
    for variant in key.variants:
        if variant.keys:
            lines.append(f"{indent}({variant.value})")
            lines += _tree(replace(key, children=variant.keys, variants=()), depth + 1)
    return lines


def search(text: str, plugins: Registry | None = None) -> list[tuple[str, Key]]:
    """Return every key that ``text`` may mean, with the kind of its document, the best match first.

    Exact names come first, then names from other tools, names and values with these words, names with words that begin
    like this, and descriptions with these words.
    """
    words = words_of(text)
    if not words:
        return []
    found: dict[str, tuple[int, str, Key]] = {}
    for kind in _KINDS_WITH_OWN:
        for key in every_key(kind, plugins):
            rank = _rank(words, key, kind) if key.path else None
            if rank is not None:
                found.setdefault(key.shown(kind), (rank, kind, key))
    ranked = sorted((rank, _is_echo(path, found), at) for at, (path, (rank, *_)) in enumerate(found.items()))
    listed = list(found.values())
    return [listed[at][1:] for *_, at in ranked]


def _rank(words: Sequence[str], key: Key, kind: str) -> int | None:
    name = words_of(key.name)
    if name == tuple(words):
        return 0
    path = key.dotted if kind == "Experiment" else f"{kind.lower()}.{key.dotted}"
    if path in KEYS.get("_".join(words), ()):
        return 1
    if set(words) <= set(name) or any(words_of(one.value) == tuple(words) for one in key.choices):
        return 2
    if all(any(one.startswith(word) for one in name) for word in words):
        return 3
    description = key.description.lower()
    if not all(word in description for word in words):  # a cheap test that excludes most keys
        return None
    there = set(words_of(re.sub(r"`[^`]*`", "", description)))
    return 4 if all(word in there or f"{word}s" in there for word in words) else None


@dataclass(frozen=True, slots=True)
class Value:
    """A value that keys accept, and its meaning."""

    word: str
    meaning: str
    paths: tuple[str, ...]
    """The keys, in the form of ``explain``."""
    keys: tuple[tuple[str, str], ...]
    """Further keys allowed beside it, and their meanings."""

    def to_text(self) -> str:
        """Return the explanation as text."""
        places = [f"`{path}`" for path in self.paths[:_NEAR]]
        places += [plural(len(self.paths) - _NEAR, "more key")] if len(self.paths) > _NEAR else []
        title = f"{self.word}: a value of {in_words(places)}"
        head = textwrap.wrap(title, _WIDTH, break_on_hyphens=False)
        beside = ["", "  its keys", *described(self.keys)] if self.keys else []
        return "\n".join([*head, "", *textwrap.wrap(self.meaning, _WIDTH), *beside]) + "\n"

    def to_dict(self) -> Json:
        """Return the explanation as plain data."""
        return {
            "value": self.word,
            "meaning": self.meaning,
            "of": [*self.paths],
            "keys": [name for name, _ in self.keys],
        }


@cache
def _takers(plugins: Registry | None) -> Mapping[str, list[tuple[str, Key, str]]]:
    """Return, for each accepted value, the kinds of document, the keys, and its meaning there."""
    found: dict[str, list[tuple[str, Key, str]]] = {}
    for kind in _KINDS_WITH_OWN:
        for key in every_key(kind, plugins):
            if key.name not in DISCRIMINATORS:
                meanings = {one.value: one.description for one in key.discriminator or key.choices}
                for word, meaning in meanings.items():
                    found.setdefault(word, []).append((kind, key, meaning))
    return found


def values(word: str, plugins: Registry | None = None) -> list[Value]:
    """Return the meanings of a word as a value; keys for which it means the same are combined."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for kind, key, meaning in _takers(plugins).get(word, ()):
        beside = [one for one in key.variants if one.value == word]
        own = tuple((name, child.description) for one in beside for name, child in one.keys.items())
        found.setdefault((meaning or key.description, own), []).append(key.shown(kind))
    told = {about: dict.fromkeys(path for path in paths if not _is_echo(path, paths)) for about, paths in found.items()}
    return [Value(word, meaning, tuple(paths), own) for (meaning, own), paths in told.items()]


def as_list(text: str, found: Sequence[tuple[str, Key]], *, alone: bool = True) -> str:
    """Return the best matches, one per line; ``alone``: whether nothing else has this name."""
    rows = [(key.shown(kind), key.description) for kind, key in found[:_MOST_SHOWN]]
    width = max(len(path) for path, _ in rows)
    room = max(_WIDTH - width - 4, 30)
    more = len(found) - len(rows)
    name = printable(text)
    lines = [f"no key has the path `{name}`; keys that mention it:" if alone else f"keys that mention `{name}`:", ""]
    lines += [f"  {path:<{width}}  {textwrap.shorten(about, room, placeholder=' ...')}" for path, about in rows]
    return "\n".join([*lines, *([f"  ... and {more} more"] if more else [])]) + "\n"


def as_rows(found: Sequence[tuple[str, Key]]) -> Json:
    """Return all matches as plain data."""
    rows: list[Json] = [{"path": key.shown(kind), "description": key.description} for kind, key in found]
    return rows
