"""Checks whether the requests of a workload are possible, independently of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, suggestion
from blis_tui.base.errors import PolicyError
from blis_tui.base.source import as_list, as_map
from blis_tui.spec.build import Part, plugin_of
from blis_tui.spec.shipped import builtin
from blis_tui.workload.arrivals import CLOSED_LOOP
from blis_tui.workload.distributions import LENGTHS, RATIOS, ContradictionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json


_NO_SOURCE: Final = "give one of them; an experiment can also name a whole workload, such as `workload: chatbot`"


def check_workload(document: Document) -> Iterator[Diagnostic]:
    """Check that the requests at ``workload`` are possible, independently of the cluster."""
    workload = document.get("workload")
    if not isinstance(workload, dict):
        return
    if ("clients" in workload) == ("trace" in workload):
        both = "both `clients` and `trace`" if "trace" in workload else "neither `clients` nor `trace`"
        hint = "give exactly one" if "trace" in workload else _NO_SOURCE
        yield _about_workload(document, "BLIS2014", f"the workload has {both}", hint)
        return
    if "trace" in workload:
        for key in ("rate_per_s", "stages", "exact_stage_counts", "sessions"):
            if key in workload:
                message = f"`{key}` does not apply to a trace: its rows say when requests arrive"
                yield about(document, ("workload", key), "BLIS2014", message, key=True, hint="remove it")
        start, end = (document.get("workload", "trace", "slice", key) for key in ("from_s", "to_s"))
        if isinstance(end, int | float) and end <= (start if isinstance(start, int | float) else 0):
            message = f"the slice ends at {end:.15g} s, but does not begin before that"
            at = ("workload", "trace", "slice", "to_s")
            yield about(
                document, at, "BLIS2014", message, hint="`to_s` is more than `from_s`, both from the trace's start"
            )
        return
    kinds = {_kind(client.get("arrivals")) for client in map(as_map, as_list(workload.get("clients")))}
    yield from _check_rate(document, workload, kinds)
    clients = list(map(as_map, as_list(workload.get("clients"))))
    if "sessions" in workload and not any("session" in client for client in clients):
        message = "`sessions` limits clients with `session`, but there are none"
        yield about(document, ("workload", "sessions"), "BLIS2026", message, key=True, hint="remove it")
    unending = not all(_ends(client, workload) for client in clients)
    if unending and workload.get("requests") is None and document.get("horizon_us") == "none":
        message = "neither `requests` nor `horizon_us` ends the run"
        yield _about_workload(document, "BLIS2016", message, "set one of them")
    yield from _check_clients(document, workload.get("clients"))


def _ends(client: Mapping[str, Json], workload: Mapping[str, Json]) -> bool:
    """Whether a client sends a last request, whatever the horizon."""
    if "session" in client and "sessions" in workload:
        return True
    if _kind(client.get("arrivals")) == CLOSED_LOOP:
        return False
    curve = as_map(client.get("rate_curve"))
    points = [as_map(point) for point in as_list(curve.get("points"))]
    return "stages" in workload or (bool(points) and not points[-1].get("factor") and not curve.get("repeat"))


def _check_rate(document: Document, workload: Mapping[str, Json], kinds: set[str]) -> Iterator[Diagnostic]:
    """Check that the request rate is given exactly once, and has an effect."""
    given = [key for key in ("rate_per_s", "stages") if key in workload]
    if CLOSED_LOOP in kinds and len(kinds) == 1:
        for key in given:
            message = (
                f"`{key}` does not apply to a closed loop: its users send the next prompt when they have the answer"
            )
            hint = f"remove it, or drop an inherited one with `{key}: null`"
            yield about(document, ("workload", key), "BLIS2014", message, key=True, hint=hint)
    elif not given:
        message = "the workload has `clients` but no `rate_per_s`"
        yield _about_workload(document, "BLIS2014", message, "add it, in requests per second")
    elif len(given) > 1:
        message = "the workload has both `rate_per_s` and `stages`"
        yield about(document, ("workload", "rate_per_s"), "BLIS2014", message, key=True, hint="give one of them")
    if not workload.get("exact_stage_counts"):
        return
    path, hint = ("workload", "exact_stage_counts"), "remove it"
    if "stages" not in workload:
        yield about(document, path, "BLIS2014", "`exact_stage_counts` without `stages`", key=True, hint=hint)
    elif kinds - {CLOSED_LOOP, "poisson"}:
        message = "`exact_stage_counts` applies only to Poisson arrivals; a client has others"
        yield about(document, path, "BLIS2014", message, key=True, hint=hint)


def _kind(arrivals: Json) -> str:
    """Return the kind of a client's arrivals, in short or long form; Poisson by default."""
    if isinstance(arrivals, dict):
        return str(arrivals.get("kind"))
    return arrivals if isinstance(arrivals, str) else "poisson"


def _about_workload(document: Document, code: str, message: str, hint: str) -> Diagnostic:
    """Return a diagnostic about the whole workload: at its key when inline, else at the top of its file."""
    path = ("workload",)
    inline = document.place(path).source is document.place(path, key=True).source
    return about(document, path, code, message, key=inline, hint=hint)


def _check_clients(document: Document, clients: Json) -> Iterator[Diagnostic]:
    seen: dict[str, int] = {}
    for at, client in enumerate(map(as_map, as_list(clients))):
        path = ("workload", "clients", at)
        name = str(client.get("id"))
        if name in seen:
            first = document.place(("workload", "clients", seen[name], "id"))
            message = f"two clients have the id `{name}`"
            yield about(document, (*path, "id"), "BLIS2017", message, hint=f"the first is on line {first.span.line}")
        seen.setdefault(name, at)
        for key in ("input_tokens", "output_tokens", "max_output_tokens"):
            yield from _check_lengths(document, (*path, key))
        for place in _lengths_of(client):
            yield from _check_lengths(document, (*path, *place))
        yield from _check_end(document, path, client)
        yield from _check_reasoning(document, path, client)
        yield from _check_media(document, (*path, "multimodal"))
        if "rate_curve" in client:
            closed = "a closed loop" if _kind(client.get("arrivals")) == CLOSED_LOOP else ""
            staged = "`stages`" if document.get("workload", "stages") else ""
            yield from _check_rate_curve(document, path, client, staged or closed)
        if "adapters" in client:
            yield from _check_adapters(document, path, client)
        if "session" in client:
            yield from _check_session(document, path, client)
            yield from _check_session_lengths(document, (*path, "session"))


def _check_session_lengths(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    for key in ("turns", "think_time_ms"):
        yield from _check_lengths(document, (*path, key))
    for at, _ in enumerate(as_list(document.get(*path, "calls"))):
        for key in ("input_tokens", "output_tokens", "wait_ms"):
            yield from _check_lengths(document, (*path, "calls", at, key))


def _check_lengths(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    low, high, mean = (document.number(*path, key) for key in ("min", "max", "mean"))
    if low is not None and high is not None and low > high:
        yield about(document, (*path, "min"), "BLIS2008", f"min {low:.15g} is greater than max {high:.15g}")
        return
    if mean is not None and ((low is not None and mean < low) or (high is not None and mean > high)):
        bounds = f"[{1 if low is None else low:.15g}, {'unlimited' if high is None else format(high, '.15g')}]"
        yield about(document, (*path, "mean"), "BLIS2009", f"mean {mean:.15g} lies outside {bounds}")
        return
    for key in ("weights", "counts"):
        given = document.get(*path, key)
        each = list(given.values()) if isinstance(given, dict) else as_list(given)
        if each and not any(each):
            yield about(document, (*path, key), "BLIS2010", f"all {key} are zero", key=True)
            return
    settings = document.get(*path)
    if not isinstance(settings, dict) or "kind" not in settings:
        return
    config, plugins = plugin_of(Part(settings, "")), builtin()
    try:
        if path[-1] == "ratio" and config.kind in plugins.names(RATIOS.path):
            plugins.create(RATIOS, config.kind, config.settings)
        elif path[-1] != "ratio" and config.kind in plugins.names(LENGTHS.path):
            plugins.create(LENGTHS, config.kind, config.settings)
    except PolicyError as error:
        inside = error.path if isinstance(error, ContradictionError) else ()
        yield about(document, (*path, *inside), "BLIS2033", error.message, key=not inside, hint=error.help)


def _check_end(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Check that only one thing says where the answers of a client end."""
    if not client.get("ignore_eos"):
        return
    at = (*path, "ignore_eos")
    if "max_output_tokens" in client:
        message = "with `ignore_eos` answers use up their budget, so `max_output_tokens` cannot differ from them"
        yield about(document, at, "BLIS2026", message, key=True, hint="remove one of them")
    elif as_map(client.get("output_tokens")).get("kind") == "until-eos":
        message = "`ignore_eos` contradicts answers of kind `until-eos`"
        hint = "remove it, or give the lengths that were asked for"
        yield about(document, at, "BLIS2026", message, key=True, hint=hint)


# ---- rates that change ----


def _check_rate_curve(
    document: Document, path: DataPath, client: Mapping[str, Json], otherwise: str
) -> Iterator[Diagnostic]:
    """Check that a rate curve has an effect and does not end; ``otherwise``: what already determines arrivals."""
    curve = (*path, "rate_curve")
    if otherwise:
        message = f"`rate_curve` has no effect with {otherwise}, which says when requests arrive"
        yield about(document, curve, "BLIS2026", message, key=True, hint="remove one of them")
    last: float | None = None
    factors = []
    for at, point in enumerate(map(as_map, as_list(as_map(client.get("rate_curve")).get("points")))):
        at_s, factor = point.get("at_s"), point.get("factor")
        if not isinstance(at_s, int | float) or not isinstance(factor, int | float):
            return
        factors.append(factor)
        if (last is None and at_s) or (last is not None and at_s <= last):
            message = "the first point is at 0" if last is None else f"{at_s:.15g} s is not after {last:.15g} s"
            yield about(
                document, (*curve, "points", at, "at_s"), "BLIS2008", message, hint="list points in order of time"
            )
        last = at_s
    if not any(factors):
        yield about(document, (*curve, "points"), "BLIS2010", "all factors are zero", key=True)


# ---- sessions ----


def _check_session(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Check that the settings of a client with sessions have an effect, and that its calls can follow one another."""
    session = as_map(client.get("session"))
    if "repeated_prompts" in client:
        message = "prompts of sessions are not repeated: each continues what was said before"
        yield about(
            document, (*path, "repeated_prompts"), "BLIS2026", message, key=True, hint="remove it, or `session`"
        )
    if session.get("turns") == 1 or as_map(session.get("turns")) == {"kind": "constant", "value": 1}:
        for key in ("think_time_ms", "max_context_tokens"):
            if key in session:
                message = f"`{key}` applies between turns, but the sessions have only one"
                hint = "set `turns`, or remove it"
                yield about(document, (*path, "session", key), "BLIS2026", message, key=True, hint=hint)
    known: dict[str, int] = {}
    calls = as_list(session.get("calls"))
    each = sum(document.whole(*path, "session", "calls", at, "parallel") or 1 for at, _ in enumerate(calls))
    yield from _check_session_calls(document, (*path, "session", "turns"), max(each, 1))
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


def _check_session_calls(document: Document, path: DataPath, calls: int) -> Iterator[Diagnostic]:
    """Check that sessions can have as many calls as their largest number of turns requires."""
    from blis_tui.workload.sessions import MAX_CALLS  # noqa: PLC0415  (few workloads have sessions)

    most = _most(document, path)
    if most * calls > MAX_CALLS:
        each = f" of {calls:,} calls" if calls > 1 else ""
        message = f"sessions can have {most:,} turns{each}, but at most {MAX_CALLS:,} calls are possible"
        yield about(document, path, "BLIS2071", message, hint=f"use at most {MAX_CALLS // calls:,} turns")


def _most(document: Document, path: DataPath) -> int:
    """Return the largest value of a distribution of whole numbers, in short or long form; without a bound, the least.

    What is drawn without a bound is found too large when it is drawn.
    """
    value = document.get(*path)
    bounds = [document.whole(*path, key) for key in ("value", "max", "min")]
    edges = [edge for edge in as_list(document.get(*path, "edges")) if isinstance(edge, int)]
    known = [bound for bound in bounds if bound is not None] + edges[-1:]
    return value if isinstance(value, int) else next(iter(known), 1)


# ---- reasoning, media, adapters ----


def _check_media(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Check that prompts can have as many items as their largest number requires."""
    from blis_tui.workload.prompt_content import MAX_ITEMS  # noqa: PLC0415  (few workloads have media)

    for kind in as_map(document.get(*path)):
        at = (*path, kind, "count")
        if (most := _most(document, at)) > MAX_ITEMS:
            message = f"prompts can have {most:,} items of {kind}, but at most {MAX_ITEMS:,} are possible"
            yield about(document, at, "BLIS2071", message, hint=f"use at most {MAX_ITEMS:,}")


def _lengths_of(client: Mapping[str, Json]) -> Iterator[DataPath]:
    """Yield the paths below a client of distributions for reasoning and media."""
    if "reasoning" in client:
        yield ("reasoning", "ratio")
    for kind in as_map(client.get("multimodal")):
        yield from (("multimodal", kind, key) for key in ("count", "tokens"))


def _check_reasoning(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Check that a client with a ``history`` setting holds sessions."""
    if "history" in as_map(client.get("reasoning")) and "session" not in client:
        message = "`history` applies to sessions, but the client has none"
        where = (*path, "reasoning", "history")
        yield about(document, where, "BLIS2026", message, key=True, hint="remove it, or add `session`")


def check_answer_targets(document: Document) -> Iterator[Diagnostic]:
    """Check that a target for the time to first answer token applies to any request."""
    clients = [*map(as_map, as_list(document.get("workload", "clients")))]
    if not clients or any("reasoning" in client for client in clients):
        return
    for name, target in as_map(document.get("slo_targets")).items():
        if "ttfat_ms" in as_map(target):
            message = f"`ttfat_ms` of `{name}` needs answers with reasoning, but no client has `reasoning`"
            hint = "use `ttft_ms`, or give a client `reasoning`"
            yield about(document, ("slo_targets", name, "ttfat_ms"), "BLIS2026", message, key=True, hint=hint)


def _check_adapters(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Check that a client's adapters and their popularity are each given once."""
    at, mix = (*path, "adapters"), as_map(client.get("adapters"))
    if ("names" in mix) == ("count" in mix):
        message = "adapters have both `names` and a `count`" if "names" in mix else "no adapters are given"
        hint = "give one of them" if "names" in mix else "give `names`, or a `count`"
        yield about(document, at, "BLIS2029", message, key=True, hint=hint)
        return
    if "weights" not in mix:
        return
    weights, count = as_list(mix.get("weights")), mix.get("count", len(as_list(mix.get("names"))))
    if "zipf" in mix:
        message = "both `weights` and `zipf` set how often adapters are requested"
        yield about(document, (*at, "zipf"), "BLIS2029", message, key=True, hint="give one of them")
    if len(weights) != count:
        message = f"{len(weights)} `weights` for {count} adapters"
        yield about(document, (*at, "weights"), "BLIS2029", message, key=True, hint="give one for each")
    elif not any(weights):
        yield about(document, (*at, "weights"), "BLIS2010", "all weights are zero", key=True)
