"""Type-checked access to parts of a resolved document."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.spec import model as spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """A map of the document with type-checked access; ``path`` is its name in errors."""

    data: Mapping[str, object]
    path: str

    def _wrong(self, key: str, wanted: str) -> InputError:
        where = f"{self.path}.{key}" if self.path else key
        found = "missing" if key not in self.data else f"not {wanted}"
        return InputError(f"not a resolved experiment: `{where}` is {found}")

    def part(self, key: str) -> Part:
        """Return the map at a key."""
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "a map")
        return Part(value, f"{self.path}.{key}" if self.path else key)

    def parts(self, key: str) -> Iterator[Part]:
        """Yield the maps of the list at a key."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        for at, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self._wrong(f"{key}.{at}", "a map")
            yield Part(entry, f"{self.path}.{key}.{at}" if self.path else f"{key}.{at}")

    def name(self) -> str:
        """Return the document's name."""
        return self.part("metadata").text("name")

    def text(self, key: str, otherwise: str | None = None) -> str:
        """Return a text."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def integer(self, key: str, otherwise: int | None = None) -> int:
        """Return an integer."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number")
        return value

    def flag(self, key: str, otherwise: bool | None = None) -> bool:
        """Return a bool."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str, otherwise: float | None = None) -> float:
        """Return a number."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        listed = Part({str(at): item for at, item in enumerate(value)}, f"{self.path}.{key}")
        return tuple(listed.number(at) for at in listed.data)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        listed = Part({str(at): item for at, item in enumerate(value)}, f"{self.path}.{key}")
        return tuple(listed.text(at) for at in listed.data)

    def optional(self, key: str, read: Callable[[Part], T]) -> T | None:
        """Return what ``read`` makes of the map at a key; None if there is none."""
        return read(self.part(key)) if key in self.data else None

    def integers(self) -> dict[str, int]:
        """Return all entries, which must be integers."""
        return {key: self.integer(key) for key in self.data}

    def floats(self) -> dict[str, float]:
        """Return all entries, which must be numbers."""
        return {key: self.number(key) for key in self.data}

    def words(self) -> dict[str, str]:
        """Return all entries, which must be texts."""
        return {key: self.text(key) for key in self.data}

    def setting(self, key: str) -> spec.Setting:
        """Return the value of a plug-in's setting."""
        value = self.data.get(key)
        if isinstance(value, list):
            if value and isinstance(value[0], dict):
                return tuple(plugin_of(part) for part in self.parts(key))
            return self.numbers(key)
        if isinstance(value, dict):
            return self.part(key).floats()
        return self.plain(key)

    def plain(self, key: str) -> bool | float | str:
        """Return a value that is neither a map nor a list."""
        value = self.data.get(key)
        if not isinstance(value, bool | int | float | str):
            raise self._wrong(key, "a plain value")
        return value


def plugin_of(part: Part) -> spec.PluginConfig:
    """Return the plug-in and settings given at a plug point."""
    return spec.PluginConfig(
        kind=part.text("kind"), settings={key: part.setting(key) for key in part.data if key != "kind"}
    )
