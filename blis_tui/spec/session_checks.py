"""Are the sessions of a workload possible?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.diagnostics import about, suggestion
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document, Json


def check_session(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Do the settings of a client that holds sessions mean something, and can its calls follow one another?"""
    session = as_map(client.get("session"))
    if "repeated_prompts" in client:
        message = "prompts of sessions are not repeated: each continues what was said before"
        yield about(
            document, (*path, "repeated_prompts"), "BLIS2026", message, key=True, hint="remove it, or `session`"
        )
    if session.get("turns") == 1 or as_map(session.get("turns")) == {"kind": "constant", "value": 1}:
        for key in ("think_time_ms", "max_context_tokens"):
            if key in session:
                message = f"`{key}` matters between turns, and the sessions have one"
                hint = "set `turns`, or remove it"
                yield about(document, (*path, "session", key), "BLIS2026", message, key=True, hint=hint)
    known: dict[str, int] = {}
    calls = as_list(session.get("calls"))
    names = [str(as_map(call).get("id")) for call in calls]
    for at, call in enumerate(map(as_map, calls)):
        where = (*path, "session", "calls", at)
        if names[at] in known:
            first = document.place((*path, "session", "calls", known[names[at]], "id")).span.line
            message = f"two calls have the id `{names[at]}`"
            yield about(document, (*where, "id"), "BLIS2017", message, hint=f"the first is on line {first}")
        for place, name in enumerate(map(str, as_list(call.get("after")))):
            if name not in known:
                message = f"`{names[at]}` comes after `{name}`, " + (
                    "which is not listed above it" if name in names else "and there is no such call"
                )
                hint = "move it up" if name in names[at + 1 :] else suggestion(name, known, otherwise="above it are")
                yield about(document, (*where, "after", place), "BLIS2028", message, hint=hint)
        if "wait_ms" in call and "after" not in call:
            message = f"`{names[at]}` starts a turn: before it comes the session's think time"
            yield about(document, (*where, "wait_ms"), "BLIS2026", message, key=True, hint="use `think_time_ms`")
        known.setdefault(names[at], at)
