"""The files with tables of measured operator times, and the GPU that each belongs to."""

from __future__ import annotations

import json
import os
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError, PolicyError
from blis_tui.base.input_files import note_opened, read_input
from blis_tui.engine.latency.operator_costs import LINEAR, OperatorCosts
from blis_tui.spec.shipped import shipped_specs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blis_tui.model import Model, PluginConfig

MAX_TABLE_BYTES: Final = 16 * 1024 * 1024
_SUFFIX: Final = ".json"
_REMEMBERED: Final = 64
"""Cache size in models; a study asks about the same few for each of its runs."""


@cache
def table_names() -> tuple[str, ...]:
    """Return the names of all tables, sorted."""
    files = os.listdir(_folder())  # noqa: PTH208  (names are wanted)
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


def tables_of(hardware: str) -> str | None:
    """Return the name of the tables measured on a GPU; None if there are none."""
    if hardware in table_names() and hardware in _hardware_of(hardware):  # common case: no other file is read
        return hardware
    return _by_hardware().get(hardware)


def table_digest(name: str) -> str:
    """Return the hexadecimal SHA-256 of a table document.

    Raises:
        InputError: there are no tables of that name.
    """
    note_opened(_path(name))  # though it is read once
    return _read(name)[1]


def read_tables(name: str) -> Mapping[str, object]:
    """Return the tables of a name.

    Raises:
        InputError: there are none.
    """
    return _read(name)[0]


@cache
def _read(name: str) -> tuple[Mapping[str, object], str]:
    """Return the tables of a name, and the SHA-256 of their document."""
    from hashlib import sha256  # noqa: PLC0415  (only these tables and traces need it)

    content = read_input(_path(name), limit=MAX_TABLE_BYTES)
    document: dict[str, object] = json.loads(content)
    return document, sha256(content).hexdigest()


@lru_cache(maxsize=_REMEMBERED)
def coverage_error(name: str, model: Model, split: int) -> PolicyError | None:
    """Return why these tables do not cover a model on ``split`` GPUs; None if they do.

    Raises:
        InputError: there are no such tables.
    """
    try:
        OperatorCosts(_for_model(name, model), model, split)
    except PolicyError as error:
        return error.with_traceback(None)  # the traceback would keep the tables in memory
    return None


def tables_for(latency: PluginConfig, model: Model) -> Mapping[str, object] | None:
    """Return the tables that a step-time model asks for, for a model; None if it asks for none.

    Raises:
        InputError: they are missing, or differ from the pinned ones.
    """
    name, expected = latency.settings.get("tables"), latency.settings.get("tables_sha256")
    if not isinstance(name, str):
        return None
    if expected != (digest := table_digest(name)):
        raise InputError(f"operator tables `{name}` are not the recorded ones: SHA-256 {digest}, expected {expected}")
    return _for_model(name, model)


def _for_model(name: str, model: Model) -> Mapping[str, object]:
    """Return the tables of a name, with those of layers with a state for models that have some."""
    return read_tables(name) if model.linear is None else _with_states(name)


@cache
def _with_states(name: str) -> Mapping[str, object]:
    path = _folder().parent / "linear" / f"{name}{_SUFFIX}"
    own = json.loads(read_input(path, limit=MAX_TABLE_BYTES)) if path.is_file() else {}
    return {**read_tables(name), LINEAR: own}


@cache
def _by_hardware() -> Mapping[str, str]:
    by_hardware: dict[str, str] = {}
    for name in table_names():
        by_hardware |= dict.fromkeys(_hardware_of(name), name)
    return by_hardware


def _hardware_of(name: str) -> list[str]:
    """Return the names of the hardware on which a table was measured."""
    hardware = read_tables(name)["hardware"]
    return [*map(str, hardware)] if isinstance(hardware, list) else []


def _path(name: str) -> Path:
    if name not in table_names():
        raise InputError(f"no operator tables are named `{name}`", help=f"there are: {', '.join(table_names())}")
    return _folder() / f"{name}{_SUFFIX}"


def _folder() -> Path:
    return shipped_specs() / "latency" / "operators"
