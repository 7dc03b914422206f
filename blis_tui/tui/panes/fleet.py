"""The fleet map: a cell per instance with its load, queue or KV cache; and the autoscaler's latest evaluation."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import bar_text, bytes_text, count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.records import ScalingDecided
from blis_tui.cluster.stages import ACTIVE, TERMINATED
from blis_tui.debugger.why.explanation import event_ref, instance_ref, request_ref
from blis_tui.debugger.why.lifespans import AGAIN
from blis_tui.tui.drawing.life_line import STATE_STYLES, name_of, rank_of, running_of, state_of
from blis_tui.tui.drawing.lines import (
    BLANK,
    Cell,
    Column,
    Line,
    fact,
    fit,
    flow,
    heading,
    line,
    shorten,
    table_rows,
    titles,
    words,
)
from blis_tui.tui.drawing.series import LEVELS, NEARLY_FULL
from blis_tui.tui.panes.instances import kv_bar
from blis_tui.tui.panes.pane import Pane, PaneKey, one_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot, TransferSnapshot
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.model import Autoscaler
    from blis_tui.tui.drawing.lines import Part
    from blis_tui.tui.view import View


VERDICTS: Final = {
    "scale-up": "↑ scale up",
    "scale-down": "↓ scale down",
    "wait": "… wait",
    "hold": "= hold",
}
_EFFECTS: Final = 5
"""Maximum number of changes shown."""
_BAR: Final = 8


def autoscaler_lines(view: View, width: int) -> list[Line]:
    """Return the latest decisions, one for each role and model, and their effects; empty without an autoscaler."""
    settings = view.experiment.cluster.autoscaler
    if settings is None:
        return []
    lines = [BLANK, heading("⇕ Autoscaler", f"evaluates every {span_text(settings.interval_us)}", width)]
    event = view.tape.latest_of("scaling-decided", view.moment.event)
    if not event:
        return [*lines, line(("It has not evaluated yet.", "$text-muted"))]
    about, head = event_ref(event), time_text(view.tape.time_us(event))
    decisions = _decisions(view, event)
    if not decisions:
        lines += [line(row, subject=about) for row in words(f"{head}: {view.tape.reason(event)}", width)]
    for decision in decisions:
        verdict = VERDICTS.get(decision.verdict, decision.verdict)
        count = f" {count_text(decision.instances)} in {decision.pool}" if decision.instances else ""
        lines += [line(row, subject=about) for row in words(f"{head} {verdict}{count}: {decision.reason}", width)]
        lines += [line(row) for row in flow(_balance(decision, settings), width)]
    effects = list(_effects(view))
    if effects:
        lines += [line(row) for row in flow([Content.styled("took effect", "$text-muted"), *effects], width)]
    return lines


def _decisions(view: View, event: int) -> list[ScalingDecided]:
    """Return the decisions' records; none during a run, because a past event would have to be replayed."""
    if view.playing:
        return []
    records = view.moment.records if event == view.moment.event else view.records_of(event)
    return [record for record in records if isinstance(record, ScalingDecided)]


def _balance(scaling: ScalingDecided, settings: Autoscaler) -> list[Content]:
    """Return demand, supply, and the thresholds."""
    supply = scaling.supply_tokens + scaling.pending_tokens
    up, down = settings.scale_up_threshold, settings.scale_down_boundary
    pending = f" {count_text(scaling.pending_tokens)} of it pending" if scaling.pending_tokens else ""
    style = "$warning" if scaling.required_tokens else "$primary"
    thresholds = [fact("up above", f"{100 * up:g} %"), fact("down below", f"{100 * down:g} %")]
    return [
        Content.assemble(
            ("demand ", "$text-muted"),
            (bar_text(scaling.demand_tokens, supply, _BAR), style),
            f" {percent_text(scaling.demand_tokens, supply)} of supply",
        ),
        fact("supply", f"{count_text(supply)} tokens{pending}"),
        *(thresholds if settings.rule is None else [fact("rule", settings.rule.kind)]),
    ]


def _effects(view: View) -> Iterator[Content]:
    """Yield the latest changes, the last one first."""
    tape, event = view.tape, view.moment.event
    for _ in range(_EFFECTS):
        event = tape.latest_of("scaled", event)
        if not event:
            return
        change = tape.values(tape.row(event)).get("change", 0)
        yield Content(f"{change:+} at {time_text(tape.time_us(event))}")
        event -= 1


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity shown by the cells."""

    name: str
    about: str
    read: Callable[[InstanceSnapshot], int]
    whole: Callable[[InstanceSnapshot], int] | None = None
    """The instance's maximum; None = relative to the largest value of any instance."""
    warns: Callable[[InstanceSnapshot], bool] = lambda _: False
    """Whether to highlight a cell."""


def load_of(instance: InstanceSnapshot) -> int:
    """Return the requests in transit to, queued at and running on an instance, each counted once.

    Routers use BLIS' effective load, which counts queued and running requests twice: the router's pane shows that.
    """
    return instance.in_flight


def kv_nearly_full(instance: InstanceSnapshot) -> bool:
    """Return whether almost no KV block is free."""
    return instance.kv.used_blocks * 100 >= instance.kv.total_blocks * NEARLY_FULL


MEASURES: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "load": Measure("load", "unfinished requests", load_of),
        "queue": Measure(
            "queue",
            "waiting requests",
            lambda instance: instance.waiting_count,
            warns=lambda instance: instance.waiting_count > 0,
        ),
        "kv": Measure(
            "KV cache",
            "KV blocks in use",
            lambda instance: instance.kv.used_blocks,
            lambda instance: instance.kv.total_blocks,
            kv_nearly_full,
        ),
        "transfers": Measure("transfers", "KV transfers to or from it", lambda instance: instance.transfers),
    }
)
_LEAST_TOP: Final = len(LEVELS)
"""Minimum for the top of the scale, so that a few requests look few."""
_NONE: Final = "·"
_HERE: Final = "◆"
"""Marks the selected instance if there is no room for its number; the first line has its figures."""
_TEN: Final = 10
_WIDE: Final = 12
"""Width of a cell with numbers."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a pool.

    Attributes:
        members: the instances.
        columns: cells per row.
        wide: whether cells have numbers.
        margin: columns before the cells, for the number of the row's first instance.
    """

    members: tuple[InstanceSnapshot, ...]
    columns: int
    wide: bool
    margin: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return -(-len(self.members) // self.columns)

    def row(self, row: int) -> tuple[InstanceSnapshot, ...]:
        """Return the instances of a row."""
        return self.members[row * self.columns : (row + 1) * self.columns]


def fleet_lines(view: View, width: int, height: int) -> list[Line]:
    """Return the map of all instances, with numbers in the cells if there is room."""
    instances, measure = view.moment.state.instances, MEASURES[view.selection.measure]
    top = max(_LEAST_TOP, *map(measure.read, instances))
    pools: dict[str, list[InstanceSnapshot]] = {}
    for instance in instances:
        pools.setdefault(instance.pool, []).append(instance)
    head = [*_selected(view, width), *_stages(instances, width)]
    tail = [*_transfers(view, width), *autoscaler_lines(view, width)]
    margin = len(str(len(instances))) + 1
    columns = max((width - margin + 1) // (_TEN + 1), 1) * _TEN
    wide_columns = max(width // _WIDE, 1)
    rows = height - len(head) - len(tail) - len(pools) - len(_legend(measure, top, width))
    wide = _rows(pools, wide_columns) <= rows
    lines: list[Line] = [*head, *_legend(measure, top, width)]
    for name, members in pools.items():
        lines.append(_pool_line(view, name, members, measure, width, alone=len(pools) == 1))
        grid = Grid(tuple(members), wide_columns if wide else columns, wide, 0 if wide else margin)
        chosen = view.selection.instance
        lines += [
            Line(partial(_row, grid, row, measure, top, chosen), cells=partial(_cells, grid, row))
            for row in range(grid.rows)
        ]
    return [*lines, *tail]


def _rows(pools: Mapping[str, Sequence[InstanceSnapshot]], columns: int) -> int:
    return whole_sum([-(-len(members) // columns) for members in pools.values()])


# ---- cells ----


def level(instance: InstanceSnapshot, measure: Measure, top: int) -> int:
    """Return the height of a cell: 0 = nothing, else from 1 to the number of ``LEVELS``."""
    value, whole = measure.read(instance), top if measure.whole is None else measure.whole(instance)
    return 0 if value <= 0 else max(min(-(-value * len(LEVELS) // whole), len(LEVELS)), 1)


def _glyph(instance: InstanceSnapshot, measure: Measure, top: int) -> tuple[str, str]:
    stage = STATE_STYLES.get(instance.life)
    if stage is not None:
        return stage.glyph, stage.style
    high = level(instance, measure, top)
    if not high:
        return _NONE, "$text-muted"
    return LEVELS[high - 1], "$warning" if measure.warns(instance) else "$primary"


def _row(grid: Grid, row: int, measure: Measure, top: int, chosen: int | None) -> Content:
    members = grid.row(row)
    parts: list[Part] = []
    if not grid.wide:
        parts.append((f"{members[0].index:>{grid.margin - 1}} ", "$text-muted"))
    for place, member in enumerate(members):
        glyph, style = _glyph(member, measure, top)
        here = member.index == chosen
        if grid.wide:
            mark = ("▸", "$accent bold") if here else (" ", "")
            value = value_text(member, measure)
            if member.transfers and measure is not MEASURES["transfers"]:
                value += " →"
            parts += [mark, (f"{member.index:>3} ", "bold reverse" if here else "$text-muted"), (glyph, style)]
            parts.append(f" {value:<{_WIDE - 8}} ")
        else:
            if place and not place % _TEN:
                parts.append(" ")
            parts.append((_HERE, "$accent bold") if here else (glyph, style))
    return Content.assemble(*parts)


def _cells(grid: Grid, row: int) -> Iterator[Cell]:
    """Yield the instances of a row, each below its glyph, and what is between them."""
    yield Cell(grid.margin)
    for place, instance in enumerate(grid.row(row)):
        if place and not place % _TEN and not grid.wide:
            yield Cell(1)
        yield Cell(_WIDE if grid.wide else 1, instance_ref(instance.index))


def value_text(instance: InstanceSnapshot, measure: Measure) -> str:
    """Return the value of a measure at an instance."""
    value = measure.read(instance)
    return count_text(value) if measure.whole is None else percent_text(value, measure.whole(instance))


def _stages(instances: Sequence[InstanceSnapshot], width: int) -> list[Line]:
    """Return the number of instances in each lifecycle stage; empty if all are active."""
    counts = Counter(instance.life for instance in instances)
    items = [
        Content.assemble((f"{stage.glyph} ", f"{stage.style} bold"), f"{count_text(counts[life])} {stage.word}")
        for life, stage in STATE_STYLES.items()
        if counts[life]
    ]
    if not items:
        return []
    items.insert(0, Content.styled(f"{count_text(counts[ACTIVE])} active", "bold"))
    return [line(row) for row in flow(items, width)]


def _legend(measure: Measure, top: int, width: int) -> list[Line]:
    upper = count_text(top) if measure.whole is None else "100 %"
    items = [
        Content.assemble((f"{measure.name}:", "bold"), (f" {measure.about}", "$text-muted")),
        Content.assemble((_NONE, "$text-muted"), " 0"),
        Content.assemble((LEVELS, "$primary"), f" up to {upper}"),
    ]
    return [line(row) for row in flow(items, width)]


def _pool_line(
    view: View, name: str, members: Sequence[InstanceSnapshot], measure: Measure, width: int, *, alone: bool
) -> Line:
    role = next((pool.role for pool in view.experiment.pools if pool.name == name), "any")
    there = [member for member in members if member.life != TERMINATED]
    most = max(there or members, key=measure.read)
    total = 0
    for instance in there:
        total += measure.read(instance)
    if measure.whole is None:
        mean = f"{total / max(len(there), 1):.1f}"
    else:
        mean = percent_text(total, sum(map(measure.whole, there)))
    facts = [
        Content.styled(_members(there), "bold" if alone else ""),
        fact("mean", mean),
        fact("most", f"{value_text(most, measure)} at instance {most.index}"),
    ]
    if not alone or role != "any":
        facts.insert(
            0, Content.assemble((name, "bold"), (f" {role}" if role not in ("any", name) else "", "$text-muted"))
        )
    return line(flow(facts, width)[0])


def _members(there: Sequence[InstanceSnapshot]) -> str:
    replicas = len({instance.rank.replica for instance in there if instance.rank is not None})
    return (
        f"{plural(len(there), 'rank')} of {plural(replicas, 'replica')}" if replicas else plural(len(there), "instance")
    )


# ---- selected instance ----


def _selected(view: View, width: int) -> list[Line]:
    chosen = view.selection.instance
    instance = next((each for each in view.moment.state.instances if each.index == chosen), None)
    if instance is None:
        hint = "Arrows or a click select an instance; enter shows its queue and batch."
        return [line(row) for row in flow([Content.styled(word, "$text-muted") for word in hint.split()], width, " ")]
    facts = [
        Content.styled(name_of(instance), "bold"),
        *state_of(instance),
        fact("load", count_text(load_of(instance))),
        fact("waiting", count_text(instance.waiting_count), "$warning" if instance.waiting_count else ""),
        fact("running", running_of(instance)),
        kv_bar(instance),
        fact("preemptions", count_text(instance.preemptions), AGAIN.style if instance.preemptions else ""),
        *rank_of(instance),
    ]
    return [line(row) for row in flow(facts, width)]


# ---- transfers ----


def _transfers(view: View, width: int) -> list[Line]:
    """Return the KV transfers in progress, the oldest first."""
    moving = view.moment.state.transfers
    if not moving:
        return []
    columns: Sequence[Column[TransferSnapshot]] = fit(list(_transfer_columns(view)), width)
    return [
        BLANK,
        heading(f"→ {plural(len(moving), 'KV transfer')} in progress"),
        titles(columns),
        *table_rows(columns, moving, lambda transfer: request_ref(transfer.request_id)),
    ]


def _transfer_columns(view: View) -> Iterator[Column[TransferSnapshot]]:
    now = view.moment.time_us
    yield Column("request", 12, lambda transfer, room: shorten(transfer.request_id, room))
    yield Column("from", 5, lambda transfer, _: str(transfer.instance), right=True)
    yield Column(
        "to", 7, lambda transfer, _: "not yet" if transfer.decode_instance is None else str(transfer.decode_instance)
    )
    yield Column("size", 7, lambda transfer, _: bytes_text(transfer.bytes), right=True, rank=2)
    yield Column("for", 7, lambda transfer, _: span_text(now - transfer.since_us), right=True, rank=1)


# ---- the pane ----


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return the selected instance, which the map marks; or the request or event of the line where it was left."""
    if left is not None and left.kind == "event":
        return left
    instance, request = view.selection.instance, view.selection.request
    if request is not None and (instance is None or (left is not None and left.kind == "request")):
        return request_ref(request)
    return None if instance is None else instance_ref(instance)


PANE: Final = Pane(
    lines=lambda view, room: fleet_lines(view, room.width, room.height),
    hint=lambda _: "arrows select · u next measure",
    lacks=one_instance,
    actions=("look_measure",),
    keys=(
        PaneKey("left", "move(-1)"),
        PaneKey("right", "move(1)"),
        PaneKey("up", "move_row(-1)"),
        PaneKey("down", "move_row(1)"),
    ),
    cursor=_cursor,
)
