"""The instances: their figures, the current step, queue and batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.units import bar_text, count_text, percent_text, plural, span_text, time_text
from blis_tui.cluster.stages import CANDIDATES
from blis_tui.debugger.state import LAST_PHASE, PHASES
from blis_tui.debugger.why.explanation import instance_ref, request_ref
from blis_tui.debugger.why.lifespans import AGAIN, STAGES, read_life
from blis_tui.tui.drawing.life_line import PHASE_STYLES, STATE_STYLES, name_of, rank_of, running_of, state_of
from blis_tui.tui.drawing.lines import (
    BLANK,
    Column,
    fact,
    fit,
    flow,
    heading,
    line,
    names_text,
    shorten,
    table_rows,
    titles,
    with_hanging_indent,
    words,
)
from blis_tui.tui.drawing.series import NEARLY_FULL
from blis_tui.tui.panes.pane import Pane, PaneKey, pick
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.engine.records import StepFinished
    from blis_tui.tui.drawing.lines import Line, Part
    from blis_tui.tui.view import View


_LEAST_SHOWN: Final = 4
"""Minimum number of queued requests shown above the batch."""
ALL_INSTANCES: Final = -1
"""Value of ``Picked.instance`` for all instances."""
_KV_BAR: Final = 8
_LEAST_BAR: Final = 3
_NAME_LEAST, _NAME_MOST = 8, 24
_OTHER_COLUMNS: Final = 24
"""Width of a batch's table without the names."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A request with its position in the queue and its wait, or with its tokens in the current step."""

    request: RequestSnapshot
    place: int = 0
    waited_us: int = 0
    tokens: int = 0


def instances_lines(view: View, width: int, room: int = 1000) -> list[Line]:
    """Return everything about the selected instance, or about all of them.

    Args:
        view: the view.
        width: in cells.
        room: maximum number of queued requests shown; the selected request and those ahead of it are always shown.
    """
    instances, chosen = view.moment.state.instances, _chosen(view)
    if chosen is None:
        lines = _all(view, instances, width, room)
    else:
        lines = _one(view, instances[chosen], width, room, alone=len(instances) == 1)
    return lines + _in_transit(view, width)


def _chosen(view: View) -> int | None:
    """Return the instance that is shown; None = all of several."""
    chosen, count = view.selection.instance, len(view.moment.state.instances)
    if count == 1:
        return 0
    return chosen if chosen is not None and 0 <= chosen < count else None


def _one(view: View, instance: InstanceSnapshot, width: int, room: int, *, alone: bool) -> list[Line]:
    items = _figures(instance)
    if not alone:
        items.insert(0, Content.styled(name_of(instance), "bold"))
    lines = [line(row) for row in flow(items, width)]
    lines += _card(view, instance.index, width)
    return lines + _requests(view, instance, width, room)


def _card(view: View, instance: int | None, width: int) -> list[Line]:
    """Return the current step if it belongs to the instance (None = any)."""
    step = view.moment.step
    if step is None or instance not in (None, step.instance):
        return []
    budget = view.tape.profiles[step.instance].limits.max_num_batched_tokens
    head = [heading(f"step {count_text(step.step)} of instance {step.instance}")] if instance is None else []
    planned_us = None
    if view.tape.plans_ahead:
        planned_us = view.tape.time_us(view.tape.step(view.tape.row(step.event).step).planned)
    return [BLANK, *head, *step_card(step, view.moment.phase, budget, width, planned_us)]


def _figures(instance: InstanceSnapshot) -> list[Content]:
    return [
        *state_of(instance),
        fact("step", count_text(instance.steps)),
        fact("running", running_of(instance)),
        fact("waiting", *_waiting(instance)),
        kv_bar(instance),
        fact("preemptions", *_preemptions(instance)),
        *_pipeline(instance),
        *rank_of(instance),
    ]


def _pipeline(instance: InstanceSnapshot) -> list[Content]:
    """Return the number of batches in the pipeline, and the idle share of its stages."""
    pipeline = instance.pipeline
    if pipeline is None:
        return []
    share = percent_text(pipeline.idle_us, pipeline.active_us * pipeline.stages)
    return [fact("batches", f"{len(pipeline.batches)} of {pipeline.places}"), fact("bubble", share)]


def kv_bar(instance: InstanceSnapshot) -> Content:
    """Return how full the KV cache is: ``KV ██████░░ 71 %``."""
    used, total = instance.kv.used_blocks, instance.kv.total_blocks
    style = "$warning" if used * 100 >= total * NEARLY_FULL else "$primary"
    return Content.assemble(
        ("KV ", "$text-muted"), (bar_text(used, total, _KV_BAR), style), f" {percent_text(used, total)}"
    )


# ---- all instances ----


def _all(view: View, instances: Sequence[InstanceSnapshot], width: int, room: int) -> list[Line]:
    columns = fit(_instance_columns(instances), width)
    lines = [titles(columns), *table_rows(columns, instances, lambda snapshot: instance_ref(snapshot.index))]
    lines += _card(view, None, width)
    ends_us = _steps_under_way(view)
    for instance in instances:
        busy = instance.running_count or instance.waiting_count
        note = "" if busy else _rests(ends_us, instance)
        if instance.life in STATE_STYLES:
            note = STATE_STYLES[instance.life].word
        lines += [BLANK, heading(name_of(instance), note, width)]
        if busy:
            lines += _requests(view, instance, width, room)[1:]
    return lines


def _instance_columns(instances: Sequence[InstanceSnapshot]) -> tuple[Column[InstanceSnapshot], ...]:
    def seats(instance: InstanceSnapshot) -> str:
        most = instance.profile.max_running
        return "any" if most is None else count_text(most)

    def full(instance: InstanceSnapshot, _width: int) -> Part:
        used, total = instance.kv.used_blocks, instance.kv.total_blocks
        warn = used * 100 >= total * NEARLY_FULL
        return (f"{bar_text(used, total, _KV_BAR)} {percent_text(used, total):>5}", "$warning" if warn else "$primary")

    widest = 6 + max(len(seats(instance)) for instance in instances)
    return (
        Column("instance", 8, lambda instance, _: f"{instance.index}"),
        Column("running", widest, lambda instance, _: f"{instance.running_count:,} of {seats(instance)}", right=True),
        Column("waiting", 7, _waiting, right=True),
        Column("KV cache", _KV_BAR + 6, full, rank=1),
        Column("step", 9, lambda instance, _: count_text(instance.steps), right=True, rank=2),
        Column("preemptions", 11, _preemptions, right=True, rank=3),
    )


def _waiting(instance: InstanceSnapshot, _width: int = 0) -> tuple[str, str]:
    return (count_text(instance.waiting_count), "$warning" if instance.waiting_count else "")


def _preemptions(instance: InstanceSnapshot, _width: int = 0) -> tuple[str, str]:
    return (count_text(instance.preemptions), AGAIN.style if instance.preemptions else "")


# ---- requests ----


def _requests(view: View, instance: InstanceSnapshot, width: int, room: int) -> list[Line]:
    """Return queue and batch, each after a blank line."""
    if not instance.waiting_count and not instance.running_count:
        moment = view.moment
        over = moment.at_end and not moment.failure and moment.settled == moment.event
        hint = "The run is over." if over else "The next request starts a step."
        if instance.life not in CANDIDATES:
            hint = f"{STATE_STYLES[instance.life].word.capitalize()}: it receives no requests."
        return [BLANK, *(line(row) for row in words(f"{_rests(_steps_under_way(view), instance)}. {hint}", width))]
    names = [request.request_id for request in (*instance.waiting, *instance.running)]
    name_width = min(max([len("request"), *map(len, names)]), _NAME_MOST, max(width - _OTHER_COLUMNS, _NAME_LEAST))
    lines: list[Line] = []
    if instance.waiting_count:
        lines += [BLANK, *_queue(view, instance, name_width, width, room)]
    if instance.running_count:
        lines += [BLANK, *_batch(view, instance, name_width, width)]
    return lines


def _steps_under_way(view: View) -> dict[int, int]:
    """Return when steps end whose results are in effect although they still take time, by instance."""
    tape, moment = view.tape, view.moment
    longest_us = max((bucket.step_us_max for bucket in tape.overview.buckets), default=0)
    ends: dict[int, int] = {}
    for event in range(tape.at_time(moment.time_us - longest_us - 1) + 1, moment.settled + 1):
        if tape.is_step(event):
            row = tape.row(event)
            end_us = row.time_us + tape.step(row.step).duration_us
            if end_us > moment.time_us:
                ends[row.instance] = max(end_us, ends.get(row.instance, 0))
    return ends


def _rests(ends_us: Mapping[int, int], instance: InstanceSnapshot) -> str:
    """Return that an instance has no request, or only those that get their last tokens in the step under way."""
    end_us = ends_us.get(instance.index)
    if end_us is None:
        return "idle: no request is waiting or running"
    return f"no request is waiting or running; the step under way ends at {time_text(end_us)}"


def _queue(view: View, instance: InstanceSnapshot, name_width: int, width: int, room: int) -> list[Line]:
    queue = instance.waiting
    ranked = len({request.priority for request in queue}) > 1
    again = any(request.preemptions for request in queue)
    selected = next((at for at, request in enumerate(queue, 1) if request.request_id == view.selection.request), 0)
    # Show one request more than needed, so that the cursor can always move down.
    shown = [
        _Row(request, at, max(view.moment.time_us - _waits_since(view, request), 0))
        for at, request in enumerate(queue[: max(room, selected + 1)], 1)
    ]
    columns = fit(
        _queue_columns(name_width, len(count_text(instance.waiting_count)), ranked=ranked, again=again), width
    )
    look = PHASE_STYLES["waiting"]
    return [
        heading(f"{look.glyph} WAITING {count_text(instance.waiting_count)}", "queue head first", width),
        titles(columns),
        *table_rows(columns, shown, lambda row: request_ref(row.request.request_id)),
        *_more(instance.waiting_count - len(shown)),
    ]


def _waits_since(view: View, request: RequestSnapshot) -> int:
    """Return when a request last joined the queue: when it came there, or when it was preempted."""
    moment, tape = view.moment, view.tape
    if request.preemptions:
        life = read_life(tape, request.request_id, moment.event, moment.settled)
        waits = () if life is None else [span for span in life.spans if span.open and span.what == "wait"]
        # Where steps are planned ahead, a victim computes until the end of the current one.
        return waits[-1].start_us if waits else moment.time_us
    number = tape.number(request.request_id)
    queued = None if number is None else tape.latest(number, "queued", moment.event)
    return request.arrival_us if queued is None else queued.time_us


def _queue_columns(name_width: int, place_width: int, *, ranked: bool, again: bool) -> list[Column[_Row]]:
    columns: list[Column[_Row]] = [
        Column("#", place_width, lambda row, _: (count_text(row.place), "$text-muted"), right=True),
        Column("request", name_width, lambda row, width: shorten(row.request.request_id, width)),
        Column("waited", 9, lambda row, _: (span_text(row.waited_us), "$warning"), right=True),
        Column("prompt", 7, lambda row, _: count_text(row.request.input_tokens), right=True, rank=1),
    ]
    if ranked:
        columns.append(Column("priority", 8, lambda row, _: str(row.request.priority), right=True, rank=2))
    if again:
        columns.append(_PREEMPTIONS)
    return columns


def _times(count: int) -> Part:
    return (f"{count} times" if count > 1 else "once", AGAIN.style) if count else ""


_PREEMPTIONS: Final[Column[_Row]] = Column(
    AGAIN.word, 9, lambda row, _: _times(row.request.preemptions), right=True, rank=3
)


def _batch(view: View, instance: InstanceSnapshot, name_width: int, width: int) -> list[Line]:
    tokens = step_tokens(view.moment.step, instance)
    running = [_Row(request, tokens=tokens.get(request.request_id, 0)) for request in instance.running]
    again = any(request.preemptions for request in instance.running)
    columns = fit(_batch_columns(name_width, step=bool(tokens), again=again), width)
    return [
        heading(
            f"{PHASE_STYLES['decode'].glyph} RUNNING {count_text(instance.running_count)}",
            "in the order scheduled",
            width,
        ),
        titles(columns),
        *table_rows(columns, running, lambda row: request_ref(row.request.request_id)),
        *_more(instance.running_count - len(running)),
    ]


def step_tokens(step: StepFinished | None, instance: InstanceSnapshot) -> dict[str, int]:
    """Return the tokens that each request of a batch computes in a step, by name; empty for other instances."""
    if step is None or step.instance != instance.index:
        return {}
    chunks = {chunk.request_id: chunk.new_tokens for chunk in step.chunks}
    idle = frozenset(step.stalled)
    first = frozenset(step.first_tokens)
    tokens: dict[str, int] = {}
    for request in instance.running:
        name = request.request_id
        if name in chunks:
            tokens[name] = chunks[name]
        elif request.phase in ("decode", "stalled") and step.decode_requests and name not in idle | first:
            tokens[name] = 1
        else:
            tokens[name] = 0
    return tokens


def _batch_columns(name_width: int, *, step: bool, again: bool) -> list[Column[_Row]]:
    columns: list[Column[_Row]] = [
        Column("request", name_width, lambda row, width: shorten(row.request.request_id, width)),
        Column("phase", 9, _phase),
        Column("progress", 11, _progress, grows=True, most=40),
        Column("blocks", 7, lambda row, _: count_text(row.request.held_blocks), right=True, rank=2),
    ]
    if step:
        columns.append(Column("in step", 7, _tokens, right=True, rank=1))
    if again:
        columns.append(_PREEMPTIONS)
    return columns


def _phase(row: _Row, _width: int) -> Part:
    look = PHASE_STYLES[row.request.phase]
    return (look.label, look.style)


def _progress(row: _Row, width: int) -> Part:
    """Return computed tokens for a prefill; generated and declared tokens for an answer."""
    done, goal, unit = progress(row.request)
    text = f"{count_text(done)}/{count_text(goal)}" if goal else f"{count_text(done)}"
    longer = f"{text} {unit}"
    bar = min(width - 1 - max(len(longer), 16), 16)
    style = PHASE_STYLES[row.request.phase].style
    if not goal or bar < _LEAST_BAR:
        fitting = (shown for shown in (longer, text, percent_text(done, goal)) if len(shown) <= width)
        return (next(fitting, ""), style)
    return (f"{bar_text(done, goal, bar)} {longer}", style)


def progress(request: RequestSnapshot) -> tuple[int, int, str]:
    """Return the progress of a running request: done, goal (0 = unknown), and its unit."""
    if request.phase == "prefill":
        return request.computed_tokens, request.target_tokens, "in"
    return request.generated_tokens, request.max_output_tokens, "out"


def _tokens(row: _Row, _width: int) -> Part:
    if not row.tokens:
        return ("0", "$text-muted")
    return (f"+{count_text(row.tokens)}", PHASE_STYLES[row.request.phase].style)


def _more(count: int) -> list[Line]:
    return [line((f"… and {count_text(count)} more", "$text-muted"))] if count > 0 else []


def _in_transit(view: View, width: int) -> list[Line]:
    """Return requests that are in no queue and in no batch, and what each is doing."""
    moving = view.moment.state.in_transit
    if not moving:
        return []
    look = PHASE_STYLES["in-transit"]
    columns: Sequence[Column[RequestSnapshot]] = fit(
        [
            Column(
                "request", min(_longest(moving), _NAME_MOST), lambda request, room: shorten(request.request_id, room)
            ),
            Column("stage", 9, lambda request, _: _stage(view, request)),
            Column(
                "goes to",
                11,
                lambda request, _: "not routed" if request.instance is None else f"instance {request.instance}",
            ),
            Column("prompt", 7, lambda request, _: count_text(request.input_tokens), right=True, rank=1),
        ],
        width,
    )
    note = "in no queue, in no batch"
    rows = table_rows(columns, moving, lambda request: request_ref(request.request_id))
    return [
        BLANK,
        heading(f"{look.glyph} {plural(len(moving), 'request')} in transit", note, width),
        titles(columns),
        *rows,
    ]


def _stage(view: View, request: RequestSnapshot) -> Part:
    """Return the interval of its life that a request in transit is in."""
    life = read_life(view.tape, request.request_id, view.moment.event, view.moment.settled)
    if life is None or not life.spans:
        return ""
    look = STAGES[life.spans[-1].what]
    return (look.word, look.style)


def _longest(requests: Iterable[RequestSnapshot]) -> int:
    return max([len("request"), *(len(request.request_id) for request in requests)])


# A step as a card with its four phases.

_NAMES: Final = 3
_SEPARATOR: Final = " · "


def step_card(
    step: StepFinished, phase: int | None, budget: int, width: int, planned_us: int | None = None
) -> list[Line]:
    """Return the four phases, ``▶`` at the present one; later ones have a dot and are dimmed.

    Args:
        step: the step.
        phase: the reader's phase, as an index of ``PHASES``; None = all of them.
        budget: ``max_num_batched_tokens``.
        width: in cells.
        planned_us: when it was planned, if steps are planned ahead.
    """
    here = LAST_PHASE if phase is None else phase
    planned = [] if planned_us is None else [Content(f"planned at {time_text(planned_us)}")]
    facts = ([*_schedule(step, budget), *planned], _execute(step), _complete(step), _next(step))
    lines: list[Line] = []
    for at, (name, items) in enumerate(zip(PHASES, facts, strict=True)):
        mark = "▶" if at == here else "·" if at > here else " "
        head_style = "$accent bold" if at == here else "$text-muted"
        head = Content.assemble((f"{mark} {name:<8}  ", head_style))
        rows = flow(items, max(width - head.cell_length, 12), _SEPARATOR)
        if at > here:
            rows = [Content.styled(row.plain, "$text-muted dim") for row in rows]
        lines += map(line, with_hanging_indent(head, rows))
    return lines


def _named(label: str, names: Sequence[str], style: str) -> list[Content]:
    return [Content.assemble((label, style), f" {names_text(names, _NAMES)}")] if names else []


def _schedule(step: StepFinished, budget: int) -> list[Content]:
    prefill = sum(chunk.new_tokens for chunk in step.chunks)
    tokens: list[str | tuple[str, str]] = []
    if prefill:
        tokens += [(count_text(prefill), STAGES["prefill"].style), " prefill"]
    if prefill and step.decode_requests:
        tokens.append(" + ")
    if step.decode_requests:
        tokens += [(count_text(step.decode_requests), STAGES["decode"].style), " decode"]
    if not tokens:
        tokens = ["no"]
    return [
        *_named("scheduled", step.admitted, "$success"),
        *_named(AGAIN.word, step.preempted, AGAIN.style),
        *_named("stalled", step.stalled, PHASE_STYLES["stalled"].style),
        Content.assemble(*tokens, f" tokens of {count_text(budget)}"),
    ]


def _execute(step: StepFinished) -> list[Content]:
    items = [Content(span_text(step.duration_us))]
    if step.decode_context_tokens:
        items.append(Content(f"reads {plural(step.decode_context_tokens, 'token')} of context"))
    return items


def _complete(step: StepFinished) -> list[Content]:
    items = [
        *_named("first token", step.first_tokens, "$success"),
        *_named("done", step.completed, "$success"),
    ]
    if not items:
        items.append(Content("no request completed"))
    return items


def _next(step: StepFinished) -> list[Content]:
    if step.next_step_us < 0:
        return [Content("goes idle: no request is waiting or running")]
    return [Content(f"next step at {time_text(step.next_step_us)}")]


# ---- the pane ----


def _hint(view: View) -> str:
    """Return which of several instances is shown."""
    count, chosen = len(view.moment.state.instances), _chosen(view)
    if count == 1:
        return ""
    which = f"all {count} instances" if chosen is None else f"instance {chosen} ({chosen + 1} of {count})"
    return f"◂ {which} ▸"


def _turn(by: int, view: View, _cursor: Subject | None) -> Picked | None:
    """Show the next instance; after the last one, all of them."""
    count, now = len(view.moment.state.instances), _chosen(view)
    if count == 1:
        return None
    # All instances come between the last one and the first.
    place = (by if now is None else now + 1 + by) % (count + 1)
    return Picked(instance=place - 1 if place else ALL_INSTANCES)


def _cursor(view: View, left: Subject | None) -> Subject | None:
    """Return the selected request, or the line of an instance as long as all are listed."""
    if left is not None and left.kind == "instance" and _chosen(view) is None:
        return left
    return None if view.selection.request is None else request_ref(view.selection.request)


def _picks(view: View, subject: Subject, *, go: bool) -> Picked | None:
    """Select a request; show an instance only by enter, because then the others are not listed any more."""
    return None if subject.kind == "instance" and not go else pick(view, subject, go=go)


PANE: Final = Pane(
    lines=lambda view, room: instances_lines(view, room.width, max(room.height // 3, _LEAST_SHOWN)),
    hint=_hint,
    keys=(PaneKey("left", partial(_turn, -1)), PaneKey("right", partial(_turn, 1))),
    cursor=_cursor,
    picks=_picks,
)
