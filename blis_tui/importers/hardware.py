"""Imports BLIS's hardware file as one Hardware document per accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.importers.draft import Draft, as_name
from blis_tui.importers.section import Input, Section
from blis_tui.spec.diagnostics import in_order

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.importers.draft import Imported
    from blis_tui.spec.source import DataPath, Json

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "MemoryGiB": ("memory_gib",),
    "TFlopsPeak": ("peak_tflops", "bf16"),
    "TFlopsFP8": ("peak_tflops", "fp8"),
    "BwPeakTBs": ("memory_bandwidth_tb_per_s",),
    "mfuPrefill": ("mfu", "prefill"),
    "mfuDecode": ("mfu", "decode"),
}
_OPTIONAL: Final = frozenset({"TFlopsFP8"})
_LOST: Final = {
    "IntraNodeBwGBps": "no step-time model reads links between accelerators",
    "InterNodeBwGBps": "no step-time model reads links between nodes",
    **dict.fromkeys(
        (
            *("BwEffConstant", "TOverheadMicros", "perLayerOverhead", "allReduceLatency", "tpScalingExponent"),
            *("mfuPrefillMultiplier", "mfuDecodeMultiplier", "prefillBwFactor", "decodeBwFactor"),
            *("vectorPeakFraction", "prefillOverheadMicros", "mixedPrefillOverheadMicros"),
        ),
        "a correction of an older roofline model of BLIS",
    ),
}


def import_hardware(path: Path) -> list[Imported]:
    """Convert every accelerator of a hardware file; each document is named like its entry, in lower case.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is not a hardware file.
    """
    given = Input.read(path)
    root = given.root()
    names: dict[str, str] = {}
    drafts: list[Draft] = []
    for entry in root.data:
        section = root.section(entry)
        if section is None:
            continue
        name = as_name(entry)
        if name in names:
            text = f"`{entry}` and `{names[name]}` would both be named `{name}`"
            given.problem((entry,), text, code="BLIS2017", key=True)
        names[name] = entry
        drafts.append(_draft(given, section, name, entry, path.name))
    if not root.data:
        given.problem((), "the file describes no accelerator", code="BLIS1006")
    given.problems = in_order(given.problems)
    given.stop_at_problems()
    return [draft.finish() for draft in drafts]


def _draft(given: Input, section: Section, name: str, entry: str, file: str) -> Draft:
    body: dict[str, Json] = {}
    origins: dict[DataPath, DataPath] = {(): section.path}
    for theirs, ours in _FIELDS.items():
        value = section.number(theirs, required=theirs not in _OPTIONAL)
        if value is None:
            continue
        origins[ours] = (*section.path, theirs)
        if len(ours) == 1:
            body[ours[0]] = value
        else:
            part = body.setdefault(ours[0], {})
            if isinstance(part, dict):
                part[ours[1]] = value
    for key, why in _LOST.items():
        section.lose(key, why)
    section.finish()
    text = f"{entry}, imported from the BLIS hardware file {file}."
    return Draft(source=given, kind="Hardware", name=name, description=text, body=body, origins=origins)
