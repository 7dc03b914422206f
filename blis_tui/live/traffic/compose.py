"""Several workloads combined into one: clients side by side, each at its own rate, or traces merged by time."""

from __future__ import annotations

import copy
from heapq import merge
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui._version import __version__
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.source import Source, as_list, as_map
from blis_tui.spec.read import parse
from blis_tui.spec.validate import open_workload
from blis_tui.spec.yaml_text import yaml_text
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.base.source import Json
    from blis_tui.live.traffic.opening import RequestTiming, Traffic
    from blis_tui.model.plug_ins import Registry

_HANDLED: Final = ("apiVersion", "kind", "metadata", "requests", "rate_per_s", "clients")


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A Workload document made from several."""

    text: str
    notes: tuple[str, ...]
    """What was changed, in one sentence each."""


class _Unique:
    """Names that are unique across documents; equal names within a document stay equal."""

    def __init__(self) -> None:
        self._taken: dict[str, None] = {}

    def renamed(self, names: Sequence[str]) -> dict[str, str]:
        """Return the new names of a document: ``chat`` becomes ``chat-2`` if another document has one."""
        new_names: dict[str, str] = {}
        own = dict.fromkeys(names)
        for name in own:
            unique, number = name, 1
            while unique in self._taken or (unique != name and unique in own):
                number += 1
                unique = f"{name}-{number}"
            new_names[name] = unique
        self._taken.update(dict.fromkeys(new_names.values()))
        return new_names


def are_traces(parts: Sequence[Traffic]) -> bool:
    """Whether all workloads are recorded.

    Raises:
        PolicyError: only some are.
    """
    recorded = [part.workload.trace is not None for part in parts]
    if any(recorded) and not all(recorded):
        trace, generated = parts[recorded.index(True)].name, parts[recorded.index(False)].name
        raise PolicyError(
            f"`{trace}` is recorded and `{generated}` is generated: they cannot be one workload",
            help=f"make a trace of it first: `blis-tui workload convert {generated} -o {generated}.csv`",
        )
    return all(recorded)


def merged(parts: Sequence[Traffic]) -> Iterator[RequestTiming]:
    """Merge the requests of all traces by time; at the same microsecond, in the order of the traces.

    Ids, sessions, prefixes and media of different traces are unrelated, so they get the trace's name.
    """
    labels = [part.name.partition(".")[0] for part in parts]
    labels = [f"{label}-{at}" if labels.count(label) > 1 else label for at, label in enumerate(labels, 1)]
    streams = (_labelled(part, label) for part, label in zip(parts, labels, strict=True))
    return merge(*streams, key=lambda timing: timing.request.arrival_us)


def _labelled(part: Traffic, label: str) -> Iterator[RequestTiming]:
    for timing in part.requests:
        request = timing.request
        request.request_id = f"{label}/{request.request_id}"
        request.segments, request.content = (
            tuple((f"{label}/{name}", tokens) for name, tokens in segments)
            for segments in (request.segments, request.content)
        )
        request.media_items = tuple(item._replace(content=f"{label}/{item.content}") for item in request.media_items)
        if request.session_id:
            request.session_id = f"{label}/{request.session_id}"
        yield timing


def composed(parts: Sequence[Traffic], name: str, plugins: Registry | None = None) -> Composed:
    """Create one document with the clients of all workloads.

    Args:
        parts: generated workloads.
        name: the name of the new document.
        plugins: where names are looked up; None = the built-in plug-ins.

    Raises:
        PolicyError: a workload has a setting that cannot be combined with others.
    """
    for part in parts:
        other = next((key for key in part.given if key not in _HANDLED), None)
        if other is not None:
            raise PolicyError(
                f"`{part.name}` has `{other}`, which would count for the clients of the others, too",
                help="give it a `rate_per_s` instead, or compose what `blis-tui workload convert` makes of it"
                if other == "stages"
                else f"remove `{other}`",
            )
    notes: list[str] = []
    clients: list[Json] = []
    ids, groups = _Unique(), _Unique()
    for part in parts:
        clients += _clients(part, ids, groups, notes)
    body: dict[str, Json] = {"clients": clients}
    if rates := [part.workload.rate_per_s for part in parts if part.workload.rate_per_s]:
        body = {"rate_per_s": fsum(rates), **body}
    limits = [part.workload.requests for part in parts]
    if None not in limits:
        total = whole_sum([limit or 0 for limit in limits])
        body = {"requests": total, **body}
        notes.append(f"requests: {total:,} of all clients together, each at its own rate")
    else:
        notes.append("requests: not all workloads limit them, so only the experiment's `horizon_us` ends this one")
    names = ", ".join(part.name for part in parts)
    data: dict[str, Json] = {
        "apiVersion": "blis/v1",
        "kind": "Workload",
        "metadata": {"name": name, "description": f"Composed of {names}."},
        **body,
    }
    remarks = [
        f"Made by `blis-tui workload compose` {__version__}. A client's share is its rate in requests per second."
    ]
    text = yaml_text(data, remarks)
    open_workload(parse(Source("the composed workload", text)), plugins=plugins)
    return Composed(text=text, notes=tuple(notes))


def _clients(part: Traffic, ids: _Unique, groups: _Unique, notes: list[str]) -> Iterator[Json]:
    """Iterate over the clients of a document, with unique names, and with rates as shares."""
    workload = part.workload
    total = fsum(client.share for client in workload.clients if client.arrivals.kind != CLOSED_LOOP)
    new_ids = ids.renamed([client.id for client in workload.clients])
    new_groups = groups.renamed([client.prefix.group for client in workload.clients if client.prefix is not None])
    for what, names in (("client", new_ids), ("prefix group", new_groups)):
        notes += [f"{part.name}: the {what} `{old}` was renamed to `{new}`" for old, new in names.items() if old != new]
    for given, client in zip(as_list(part.given.get("clients")), workload.clients, strict=True):
        data = copy.deepcopy(as_map(given))
        data["id"] = new_ids[client.id]
        if client.arrivals.kind != CLOSED_LOOP:
            rest = {key: value for key, value in data.items() if key not in ("id", "share")}
            data = {"id": data["id"], "share": workload.rate_per_s * client.share / total, **rest}
        if client.prefix is not None:
            as_map(data["prefix"])["group"] = new_groups[client.prefix.group]
        yield data
