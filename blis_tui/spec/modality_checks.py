"""Does what documents say of reasoning, images, audio and video mean something?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.diagnostics import about
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document, Json


def lengths_of(client: Mapping[str, Json]) -> Iterator[DataPath]:
    """Where below a client distributions of them stand."""
    if "reasoning" in client:
        yield ("reasoning", "ratio")
    for kind in as_map(client.get("multimodal")):
        yield from (("multimodal", kind, key) for key in ("count", "tokens"))


def check_reasoning(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Does a client have a history whose reasoning could be dropped or kept?"""
    if "history" in as_map(client.get("reasoning")) and "session" not in client:
        message = "`history` matters in sessions, and the client holds none"
        where = (*path, "reasoning", "history")
        yield about(document, where, "BLIS2026", message, key=True, hint="remove it, or add `session`")


def check_answer_targets(document: Document) -> Iterator[Diagnostic]:
    """Is there anybody with a time to first answer token?"""
    clients = [*map(as_map, as_list(document.get("workload", "clients")))]
    if not clients or any("reasoning" in client for client in clients):
        return
    for name, target in as_map(document.get("slo_targets")).items():
        if "ttfat_ms" in as_map(target):
            message = f"`ttfat_ms` of `{name}` is about answers behind reasoning, and no client reasons"
            hint = "use `ttft_ms`, or give a client `reasoning`"
            yield about(document, ("slo_targets", name, "ttfat_ms"), "BLIS2026", message, key=True, hint=hint)
