"""What a key of a document means: looked up by its dotted path or found by a word, as text or as plain data."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final

from blis_tui.authoring.tree import DISCRIMINATORS, Key, every_key, root
from blis_tui.classes import dataclass
from blis_tui.columns import described
from blis_tui.errors import BlisError
from blis_tui.printable import printable
from blis_tui.spec.nearness import words_of
from blis_tui.spec.scalars import flow
from blis_tui.spec.schema import KINDS
from blis_tui.spec.synonyms import KEYS
from blis_tui.units import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.registry import Registry
    from blis_tui.spec.source import Json

_WIDTH: Final = 100
_NEAR: Final = 5
_KINDS_WITH_OWN: Final = ("Experiment", "Latency", "Study")
"""The documents with keys of their own; an experiment holds the keys of all others."""
_MOST_SHOWN: Final = 12


class UnknownKeyError(BlisError):
    """No key has that path; the help names the nearest ones."""


def look_up(path: str, plugins: Registry | None = None) -> tuple[str, list[Key]]:
    """The kind of document and the keys at a dotted path.

    ``engine.kv_blocks`` is a path in an experiment, ``Hardware.mfu`` one in a document of that kind, ``Hardware`` the
    document itself. Positions in lists may be left out. Several keys are found where a key means something else for
    another ``kind`` beside it.

    Raises:
        UnknownKeyError: there is no such key.
    """
    steps = [step for step in path.split(".") if step]
    named = {kind.lower(): kind for kind in KINDS}
    kind = "Experiment"
    # `workload` alone is a key of an experiment; `Workload` is the kind of document.
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
    """The keys a step leads to: a child, the same child in several variants, or a variant by its name."""
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
    """Paths that end with the key, or with the one nearest to it, anywhere."""
    every: dict[str, list[str]] = {}
    for kind in KINDS:
        for key in root(kind, plugins).walk():
            shown = key.shown(kind)
            if key.path and shown not in every.setdefault(key.name, []):
                every[key.name].append(shown)
    near = [step] if step in every else get_close_matches(step, sorted(every), n=1, cutoff=0.75)
    paths = every.get(near[0], []) if near else []
    # The same key of a document and of an experiment that holds it: the experiment's path is the one for `--set`.
    short = [one for one in paths if one[0].islower()] or paths
    return [one for one in short if not _is_echo(one, short)][:_NEAR]


def is_among(path: str, paths: Iterable[str]) -> bool:
    """Whether it is one of these keys, or its echo."""
    return any(path == other or path.endswith(f".{other}") for other in paths)


def _is_echo(path: str, paths: Iterable[str]) -> bool:
    """Whether it is another of these keys further down, as a pool's `engine` has the keys of the experiment's."""
    return any(path.endswith(f".{other}") for other in paths)


def as_data(kind: str, keys: Iterable[Key]) -> Json:
    """What is known about the keys, as plain data."""
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
    """What is known about the keys, for a person."""
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
    """The tree of all keys of a kind of document, a line each."""
    return "\n".join([f"{kind}: {root(kind).description}", *_tree(root(kind, plugins), 0)]) + "\n"


def _tree(key: Key, depth: int) -> list[str]:
    lines: list[str] = []
    indent = "  " * (depth + 1)
    for child in key.children.values():
        mark = "required" if child.required else f"[{flow(child.default)}]" if child.has_default else ""
        known = "|".join(one.value for one in child.choices)
        about = " ".join(part for part in (child.type if child.type != "word" else known, child.unit, mark) if part)
        lines.append(f"{indent}{child.name}: {about}")
        if not child.document:  # the other document has a tree of its own
            lines += _tree(child, depth + 1)
    for variant in key.variants:
        if variant.keys:
            lines.append(f"{indent}({variant.value})")
            lines += _tree(replace(key, children=variant.keys, variants=()), depth + 1)
    return lines


def search(text: str, plugins: Registry | None = None) -> list[tuple[str, Key]]:
    """Every key that ``text`` may be about, with the kind of its document, the best match first.

    A key of that name comes before one that others call so, then names and values with these words, names with words
    that begin so, and descriptions with these words.
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
    if not all(word in description for word in words):  # most of them: a look that takes little
        return None
    there = set(words_of(re.sub(r"`[^`]*`", "", description)))
    return 4 if all(word in there or f"{word}s" in there for word in words) else None


@dataclass(frozen=True, slots=True)
class Value:
    """A word that keys take, and what it means there."""

    word: str
    meaning: str
    paths: tuple[str, ...]
    """The keys, as ``explain`` takes them."""
    keys: tuple[tuple[str, str], ...]
    """What may be said beside it, and what that means."""

    def to_text(self) -> str:
        """For a person."""
        title = f"{self.word}: a value of {in_words([f'`{path}`' for path in self.paths[:_NEAR]])}"
        head = textwrap.wrap(title, _WIDTH, break_on_hyphens=False)
        beside = ["", "  its keys", *described(self.keys)] if self.keys else []
        return "\n".join([*head, "", *textwrap.wrap(self.meaning, _WIDTH), *beside]) + "\n"

    def to_dict(self) -> Json:
        """As plain data."""
        return {
            "value": self.word,
            "meaning": self.meaning,
            "of": [*self.paths],
            "keys": [name for name, _ in self.keys],
        }


@cache
def _takers(plugins: Registry | None) -> Mapping[str, list[tuple[str, Key, str]]]:
    """Each word that keys take -> the kind of the document of each of them, the key, and what the word means there."""
    found: dict[str, list[tuple[str, Key, str]]] = {}
    for kind in _KINDS_WITH_OWN:
        for key in every_key(kind, plugins):
            if key.name not in DISCRIMINATORS:
                meanings = {one.value: one.description for one in key.discriminator or key.choices}
                for word, meaning in meanings.items():
                    found.setdefault(word, []).append((kind, key, meaning))
    return found


def values(word: str, plugins: Registry | None = None) -> list[Value]:
    """What a word means as the value of keys; keys for which it means the same are told together."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for kind, key, meaning in _takers(plugins).get(word, ()):
        beside = [one for one in key.variants if one.value == word]
        own = tuple((name, child.description) for one in beside for name, child in one.keys.items())
        found.setdefault((meaning or key.description, own), []).append(key.shown(kind))
    told = {about: dict.fromkeys(path for path in paths if not _is_echo(path, paths)) for about, paths in found.items()}
    return [Value(word, meaning, tuple(paths), own) for (meaning, own), paths in told.items()]


def as_list(text: str, found: Sequence[tuple[str, Key]], *, alone: bool = True) -> str:
    """The best matches, a line each, for a person; ``alone``: nothing else is called so."""
    rows = [(key.shown(kind), key.description) for kind, key in found[:_MOST_SHOWN]]
    width = max(len(path) for path, _ in rows)
    room = max(_WIDTH - width - 4, 30)
    more = len(found) - len(rows)
    name = printable(text)
    lines = [f"no key has the path `{name}`; keys that mention it:" if alone else f"keys that mention `{name}`:", ""]
    lines += [f"  {path:<{width}}  {textwrap.shorten(about, room, placeholder=' ...')}" for path, about in rows]
    return "\n".join([*lines, *([f"  ... and {more} more"] if more else [])]) + "\n"


def as_rows(found: Sequence[tuple[str, Key]]) -> Json:
    """All matches as plain data."""
    rows: list[Json] = [{"path": key.shown(kind), "description": key.description} for kind, key in found]
    return rows
