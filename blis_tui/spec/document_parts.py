"""Parts of a resolved document, read with their types checked."""

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
    """A map of the document, read with its types checked; ``path`` names it in errors."""

    data: Mapping[str, object]
    path: str

    def _wrong(self, key: str, wanted: str) -> InputError:
        where = f"{self.path}.{key}" if self.path else key
        found = "missing" if key not in self.data else f"not {wanted}"
        return InputError(f"not a resolved experiment: `{where}` is {found}")

    def part(self, key: str) -> Part:
        """The map at a key."""
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "a map")
        return Part(value, f"{self.path}.{key}" if self.path else key)

    def parts(self, key: str) -> Iterator[Part]:
        """The maps of the list at a key."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        for at, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self._wrong(f"{key}.{at}", "a map")
            yield Part(entry, f"{self.path}.{key}.{at}" if self.path else f"{key}.{at}")

    def name(self) -> str:
        """What the document is called."""
        return self.part("metadata").text("name")

    def text(self, key: str, otherwise: str | None = None) -> str:
        """Text."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def integer(self, key: str, otherwise: int | None = None) -> int:
        """A whole number."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number")
        return value

    def flag(self, key: str, otherwise: bool | None = None) -> bool:
        """True or false."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str, otherwise: float | None = None) -> float:
        """A number."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        listed = Part({str(at): item for at, item in enumerate(value)}, f"{self.path}.{key}")
        return tuple(listed.number(at) for at in listed.data)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        listed = Part({str(at): item for at, item in enumerate(value)}, f"{self.path}.{key}")
        return tuple(listed.text(at) for at in listed.data)

    def optional(self, key: str, read: Callable[[Part], T]) -> T | None:
        """What a map at a key says; None = it is not there."""
        return read(self.part(key)) if key in self.data else None

    def integers(self) -> dict[str, int]:
        """All entries, which are whole numbers."""
        return {key: self.integer(key) for key in self.data}

    def floats(self) -> dict[str, float]:
        """All entries, which are numbers."""
        return {key: self.number(key) for key in self.data}

    def words(self) -> dict[str, str]:
        """All entries, which are texts."""
        return {key: self.text(key) for key in self.data}

    def setting(self, key: str) -> spec.Setting:
        """What a setting of a plug-in may be."""
        value = self.data.get(key)
        if isinstance(value, list):
            if value and isinstance(value[0], dict):
                return tuple(plugin_of(part) for part in self.parts(key))
            return self.numbers(key)
        if isinstance(value, dict):
            return self.part(key).floats()
        return self.plain(key)

    def plain(self, key: str) -> bool | float | str:
        """A value that is no map and no list."""
        value = self.data.get(key)
        if not isinstance(value, bool | int | float | str):
            raise self._wrong(key, "a plain value")
        return value


def plugin_of(part: Part) -> spec.PluginConfig:
    """What a spec says at a plug point."""
    return spec.PluginConfig(
        kind=part.text("kind"), settings={key: part.setting(key) for key in part.data if key != "kind"}
    )
