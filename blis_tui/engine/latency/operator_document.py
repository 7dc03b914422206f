"""Records of a document of measured operator times, as written by ``docs/make_operators.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENT_HEAD_DIM: Final = 128
"""Head width of latent attention in prompts, without the rotated part."""


class Rows:
    """Rows of times, parsed on demand: a model needs only a few rows of most tables."""

    __slots__ = ("_texts",)

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts

    def __getitem__(self, at: int) -> tuple[float | None, ...]:
        return row_of(self._texts[at])

    def __iter__(self) -> Iterator[tuple[float | None, ...]]:
        return map(row_of, self._texts)


@dataclass(frozen=True, slots=True)
class Grid:
    """Dense products of one type."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    rows: Rows | tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Decodes:
    """Attention of one query per sequence, for one number of KV heads."""

    kv_cache: str
    head_dim: int
    kv_heads: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Prompts:
    """Causal attention of whole prompts."""

    kv_cache: str
    head_dim: int
    heads: tuple[int, ...]
    lengths: tuple[int, ...]
    rows: Rows
    saturated: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LatentDecodes:
    """Latent attention of one query per sequence, for one number of heads."""

    kv_cache: str
    heads: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Mixture:
    """Expert layers of one shape."""

    kind: str
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    split: int
    times: str
    """As in the document; parsed by :func:`row_of`."""


class Part:
    """Typed access to a document that is known to be well-formed."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, dict):
            raise TypeError("not a map")
        self.data: dict[str, object] = data

    def part(self, key: str) -> Part:
        """Return the map under a key."""
        return Part(self.data[key])

    def parts(self, key: str) -> Iterator[Part]:
        """Iterate over the maps listed under a key."""
        return map(Part, self._list(key))

    def text(self, key: str) -> str:
        """Return the text under a key."""
        return str(self.data[key])

    def number(self, key: str) -> float:
        """Return the number under a key."""
        return float(str(self.data[key]))

    def integer(self, key: str) -> int:
        """Return the whole number under a key."""
        return int(str(self.data[key]))

    def numbers(self, key: str) -> tuple[int, ...]:
        """Return the whole numbers listed under a key."""
        return tuple(int(str(one)) for one in self._list(key))

    def lines(self, key: str) -> tuple[str, ...]:
        """Return the texts listed under a key."""
        return tuple(map(str, self._list(key)))

    def texts(self, key: str) -> list[tuple[str, str]]:
        """Return names and texts of the map under a key."""
        return [(name, str(value)) for name, value in self.part(key).data.items()]

    def rows(self, key: str) -> Rows:
        """Return the rows listed under a key."""
        return Rows(self.lines(key))

    def _list(self, key: str) -> list[object]:
        found = self.data[key]
        if not isinstance(found, list):
            raise TypeError(f"{key} is no list")
        return found


def row_of(text: str) -> tuple[float | None, ...]:
    """Parse a row of times; ``-`` = not measured."""
    return tuple(None if one == "-" else float(one) for one in text.split())


def grid_of(part: Part) -> Grid:
    """Read the tables of one type."""
    return Grid(part.numbers("m"), part.numbers("n"), part.numbers("k"), part.rows("us"))


def decodes_of(part: Part) -> Decodes:
    """Read the tables for one number of KV heads."""
    return Decodes(
        part.text("kv_cache"),
        part.integer("head_dim"),
        part.integer("kv_heads"),
        part.numbers("batch"),
        part.numbers("context"),
        part.rows("us"),
    )


def latent_decodes_of(part: Part) -> LatentDecodes:
    """Read the tables for one number of heads."""
    return LatentDecodes(
        part.text("kv_cache"),
        part.integer("heads"),
        part.numbers("batch"),
        part.numbers("context"),
        part.rows("us"),
    )


def prompts_of(part: Part) -> Prompts:
    """Read the tables for one width of heads."""
    return Prompts(
        part.text("kv_cache"),
        part.integer("head_dim") if "head_dim" in part.data else LATENT_HEAD_DIM,
        part.numbers("heads"),
        part.numbers("length"),
        part.rows("us"),
        row_of(part.text("saturated_us")),
    )


def mixture_of(line: str) -> Mixture:
    """Parse a line: type, shape, times."""
    shape, _, times = line.partition(":")
    kind, *sizes = shape.split()
    hidden, intermediate, experts, top_k, split = map(int, sizes)
    return Mixture(kind, hidden, intermediate, experts, top_k, split, times)
