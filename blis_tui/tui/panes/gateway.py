"""The gateway: saturation of the instances, waiting requests by priority and tenant, and the next request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.units import bar_text, count_text, plural, span_text
from blis_tui.debugger.why.explanation import request_ref
from blis_tui.tui.drawing.lines import (
    BLANK,
    Column,
    fact,
    fit,
    flow,
    heading,
    line,
    remark,
    shorten,
    table_rows,
    titles,
)
from blis_tui.tui.panes.pane import Pane, at_selected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.snapshot import BandSnapshot, FlowSnapshot, GatewaySnapshot
    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.view import View

_BAR: Final = 8
_THOUSAND: Final = 1000
NO_TENANT: Final = "no tenant"


def gateway_lines(view: View, width: int) -> list[Line]:
    """Return the lines about the queue."""
    gateway = view.moment.state.gateway
    if gateway is None:
        return [line(("This experiment has no gateway.", "$text-muted"))]
    lines = [line(row) for row in flow(_figures(view, gateway), width)]
    lines += remark(gateway.rule, width)
    several = view.experiment.policy.gateway is not None and view.experiment.policy.gateway.bands
    for band in gateway.bands:
        lines += _band(view, gateway, band, width, several=several)
    if not gateway.bands:
        lines += [BLANK, *remark(_empty(view, gateway), width)]
    return lines


def _empty(view: View, gateway: GatewaySnapshot) -> str:
    """Return what an empty queue means for the next request, which depends on the saturation."""
    settings = view.experiment.policy.gateway
    least = settings.usage_limit if settings is not None and settings.bands else 1.0
    if gateway.saturation >= 1:
        return "The queue is empty. By the latest signals the instances are saturated: a request would be held."
    if gateway.saturation >= least:
        return "The queue is empty. By the latest signals the least urgent requests would be held."
    return "The queue is empty: by the latest signals, requests go straight to the router."


def _figures(view: View, gateway: GatewaySnapshot) -> list[Content]:
    settings = view.experiment.policy.gateway
    most = "" if settings is None or not settings.max_depth else f" of {count_text(settings.max_depth)}"
    saturation = int(gateway.saturation * _THOUSAND)
    style = "$warning" if gateway.saturation >= 1 else "$primary"
    facts = [
        fact("waiting", f"{count_text(gateway.waiting)}{most}", "$warning" if gateway.waiting else ""),
        Content.assemble(
            ("saturation ", "$text-muted"),
            (bar_text(saturation, _THOUSAND, _BAR), style),
            f" {gateway.saturation:.2f}",
            (" (by the latest signals)", "$text-muted"),
        ),
    ]
    if gateway.upcoming:
        band = gateway.bands[0]
        held = gateway.saturation >= band.ceiling
        why = f"held until saturation is below {band.ceiling:.2f}" if held else "at the next dispatch"
        facts.append(Content.assemble(("next ", "$text-muted"), gateway.upcoming, (f" {why}", "$text-muted")))
    if view.moment.state.deferred:
        facts.append(fact("deferred until idle", count_text(view.moment.state.deferred)))
    return facts


def _band(view: View, gateway: GatewaySnapshot, band: BandSnapshot, width: int, *, several: bool) -> list[Line]:
    columns = fit(list(_columns(view, gateway)), width)
    title = (
        f"priority {band.priority}: {count_text(band.waiting)} waiting"
        if several
        else f"{count_text(band.waiting)} waiting"
    )
    note = f"dispatched below saturation {band.ceiling:.2f}" if several else plural(len(band.flows), "tenant")
    return [
        BLANK,
        heading(f"○ {title}", note, width),
        titles(columns),
        *table_rows(columns, band.flows, lambda tenant_flow: request_ref(tenant_flow.head)),
    ]


def _columns(view: View, gateway: GatewaySnapshot) -> Iterator[Column[FlowSnapshot]]:
    now = view.moment.time_us

    def head(tenant_flow: FlowSnapshot, room: int) -> str:
        return f"{'▶' if tenant_flow.head == gateway.upcoming else ' '} {shorten(tenant_flow.head, room - 2)}"

    yield Column(
        "tenant", 9, lambda tenant_flow, room: shorten(tenant_flow.tenant_id or NO_TENANT, room), grows=True, most=20
    )
    yield Column("waiting", 7, lambda tenant_flow, _: count_text(tenant_flow.waiting), right=True, rank=2)
    yield Column("queue head", 14, head)
    yield Column("waited", 9, lambda tenant_flow, _: span_text(now - tenant_flow.since_us), right=True, rank=1)


PANE: Final = Pane(
    lines=lambda view, room: gateway_lines(view, room.width),
    lacks=lambda experiment: "." if experiment.policy.gateway is None else "",
    cursor=at_selected("request"),
)
