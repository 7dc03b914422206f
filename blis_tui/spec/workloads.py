"""A workload on its own, without an experiment."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import in_order
from blis_tui.base.errors import SpecError
from blis_tui.base.source import as_map
from blis_tui.spec.build import Part, build_workload
from blis_tui.spec.compose import Problems, checked
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.validate import check_alone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blis_tui.base.source import Document, Json
    from blis_tui.model import Workload
    from blis_tui.model.plug_ins import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWorkload:
    """A checked Workload document."""

    workload: Workload
    given: dict[str, Json]
    """The document as given, without defaults."""
    files: tuple[Path, ...]
    """Its trace file, if it has one."""


def open_workload(
    document: Document, *, overrides: Sequence[str] = (), plugins: Registry | None = None
) -> OpenWorkload:
    """Check a Workload document as part of an experiment, and build what it describes.

    Args:
        document: the document as it was read.
        overrides: ``path=value`` texts; paths start in the document.
        plugins: plug-ins that it may name; None = those of this package.

    Raises:
        SpecError: with every problem found.
        InputError: its trace cannot be read.
    """
    problems = Problems(plugins)
    checked(document, "Workload", parse_overrides(overrides), problems)
    given = copy.deepcopy(as_map(document.data))
    path = None if problems.found else check_alone(document, "Workload", problems)
    if problems.found:
        raise SpecError(in_order(problems.found))
    workload = build_workload(Part(as_map(document.data), "workload"), None if path is None else str(path))
    return OpenWorkload(workload=workload, given=given, files=() if path is None else (path,))
