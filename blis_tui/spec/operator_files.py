"""Where the tables of measured operator times are, and which belong to a GPU."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.errors import InputError, PolicyError
from blis_tui.inputs import input_digest
from blis_tui.spec.places import shipped_specs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.spec.model import Model, PluginConfig

MAX_TABLE_BYTES: Final = 16 * 1024 * 1024
_REMEMBERED: Final = 64
"""Models that were asked about; a study asks about the same few for each of its runs."""


def table_names() -> tuple[str, ...]:
    """All there are, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.json")))


def tables_of(hardware: str) -> str | None:
    """The name of the tables that were measured on a GPU; None = there are none."""
    if hardware in table_names() and hardware in _hardware_of(hardware):  # as nearly always: the others stay unread
        return hardware
    return _by_hardware().get(hardware)


def table_digest(name: str) -> str:
    """SHA-256 of a table document in hexadecimal.

    Raises:
        InputError: there are no tables of that name.
    """
    return input_digest(_path(name), limit=MAX_TABLE_BYTES)


@cache
def read_tables(name: str) -> Mapping[str, object]:
    """The tables of that name.

    Raises:
        InputError: there are none.
    """
    found: dict[str, object] = json.loads(_path(name).read_bytes())
    return found


@lru_cache(maxsize=_REMEMBERED)
def lacking(name: str, model: Model, split: int) -> PolicyError | None:
    """Why steps of a model on so many GPUs cannot be worked out from the tables of that name; None = they can.

    Raises:
        InputError: there are no such tables.
    """
    try:
        OperatorCosts(read_tables(name), model, split)
    except PolicyError as error:
        return error.with_traceback(None)  # it would keep all that was looked at
    return None


def tables_for(latency: PluginConfig) -> Mapping[str, object] | None:
    """The tables that a step-time model asks for; None where it asks for none.

    Raises:
        InputError: they are not there, or not the ones that were pinned.
    """
    name, expected = latency.settings.get("tables"), latency.settings.get("tables_sha256")
    if not isinstance(name, str):
        return None
    if expected != (found := table_digest(name)):
        raise InputError(f"operator tables `{name}` are not the recorded ones: SHA-256 {found}, expected {expected}")
    return read_tables(name)


@cache
def _by_hardware() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in table_names():
        found |= dict.fromkeys(_hardware_of(name), name)
    return found


def _hardware_of(name: str) -> list[str]:
    """The names of the hardware that a table was measured on."""
    hardware = read_tables(name)["hardware"]
    return [*map(str, hardware)] if isinstance(hardware, list) else []


def _path(name: str) -> Path:
    if name not in table_names():
        raise InputError(f"no operator tables are named `{name}`", help=f"there are: {', '.join(table_names())}")
    return _folder() / f"{name}.json"


def _folder() -> Path:
    return shipped_specs() / "latency" / "operators"
