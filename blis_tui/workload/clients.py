"""The requests of single clients: their contents, and the gaps between them."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import PolicyError
from blis_tui.base.pickling import Picklable, stateful_plugins
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.streams import Streams
from blis_tui.engine.request import NO_MEDIA, Connection, Reasoning, Request, under_adapter
from blis_tui.workload.arrivals import CLOSED_LOOP, CurvedGaps, DrawnStages, ExactStages, create_gaps
from blis_tui.workload.distributions import LENGTHS, UntilEosTokens, counts, ratios_of, tokens_of
from blis_tui.workload.prompt_content import NOTHING_DRAWN, AdapterDraws, MediaDraws, placed

if TYPE_CHECKING:
    from blis_tui.base.streams import Stream
    from blis_tui.engine.request import Segments
    from blis_tui.model import Budget, Client, PluginConfig, Workload
    from blis_tui.model.plug_ins import Registry
    from blis_tui.workload.arrivals import Gaps
    from blis_tui.workload.distributions import TokenCounts
    from blis_tui.workload.prompt_content import DrawnMedia
    from blis_tui.workload.sessions import SessionDraws, SessionRun


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientSource(Picklable):
    """The endless requests of one client.

    Three streams (``workload/<client id>/arrivals``, ``input`` and ``output``) keep its numbers apart from those of
    other clients, and its lengths apart from its arrivals. Each of its sessions has a stream of its own, and so have
    output budgets, adapters, reasoning shares, and media.

    Attributes:
        gaps: its arrival process.
        sessions: its sessions; ``None`` = its requests are independent.
    """

    __slots__ = (
        "_adapters",
        "_arrival_stream",
        "_budget_stream",
        "_budgets",
        "_declared",
        "_fresh",
        "_id",
        "_ignores_eos",
        "_input_stream",
        "_inputs",
        "_media",
        "_media_stream",
        "_model",
        "_network",
        "_output_stream",
        "_outputs",
        "_prompts",
        "_ratio_stream",
        "_ratios",
        "_reasons",
        "_remembering",
        "_sent",
        "_slo_class",
        "_tenant",
        "_timeout_us",
        "gaps",
        "sessions",
    )

    def __init__(self, client: Client, share: float, workload: Workload, streams: Streams, plugins: Registry) -> None:
        self._id = client.id
        path = f"workload/{client.id}"
        self._arrival_stream = streams.stream(f"{path}/arrivals")
        self._input_stream = streams.stream(f"{path}/input")
        self._output_stream = streams.stream(f"{path}/output")
        self.gaps = _gaps_of(client, share, workload, plugins)
        self._inputs = _lengths(plugins, client.input_tokens)
        self._outputs = _lengths(plugins, client.output_tokens)
        prefix = client.prefix
        head = 0 if prefix is None else prefix.tokens
        # One tuple for all requests with the same prompt makes comparing and pickling cheap.
        segments: Segments = () if prefix is None else ((prefix.group, prefix.tokens),)
        self._budget_stream = streams.stream(f"{path}/budget")
        self._budgets = None if client.max_output_tokens is None else Budgets(client.max_output_tokens, plugins)
        self._declared = _cut_at(client, self._outputs)
        self._ignores_eos = client.ignore_eos
        self._reasons = any(other.reasoning is not None for other in workload.clients)
        self._ratios = ratios_of(client, plugins)
        self._ratio_stream = streams.stream(f"{path}/reasoning")
        self._media = None if client.multimodal is None else MediaDraws(client.id, client.multimodal, plugins)
        self._media_stream = streams.stream(f"{path}/multimodal")
        self._prompts: list[tuple[int, Segments, DrawnMedia]] = []
        for number in range(client.repeated_prompts):
            tokens, drawn = self._new_text()
            self._prompts.append((head + tokens, (*segments, (f"{client.id}/prompt-{number}", tokens)), drawn))
        self._fresh = (head, segments)
        self._sent = 0
        mix = client.adapters
        self._adapters = None if mix is None else AdapterDraws(mix, streams.stream(f"{path}/adapters"))
        self.sessions: SessionDraws | None = None
        if client.session is not None:
            from blis_tui.workload.sessions import SessionDraws  # noqa: PLC0415  (few workloads have any)

            self.sessions = SessionDraws(client, client.session, streams, plugins, self._adapters)
        self._remembering = stateful_plugins(self.gaps, self._inputs, self._outputs, self._ratios)
        self._slo_class = client.slo_class
        self._tenant = client.tenant
        self._model = client.model
        self._timeout_us = client.timeout_us or 0
        network = client.network
        self._network = None if network is None else Connection(network.rtt_ms, network.bandwidth_mbps)

    def next_gap_us(self) -> int:
        """Time from this client's last arrival to its next; -1 = there is none."""
        return self.gaps.sample(self._arrival_stream)

    def state(self) -> tuple[object, ...]:
        """Return the positions of its streams, and the next prompt's turn if prompts repeat."""
        streams: tuple[object, ...]
        streams = (self._arrival_stream.state(), self._input_stream.state(), self._output_stream.state())
        if self._adapters is not None:
            streams = (*streams, self._adapters.state())
        if self._budgets is not None:
            streams = (*streams, self._budget_stream.state())
        if self._ratios is not None:
            streams = (*streams, self._ratio_stream.state())
        if self._media is not None:
            streams = (*streams, self._media_stream.state())
        if self.sessions is not None:
            return (*streams, self.sessions.state())
        if self._remembering:
            streams = (*streams, *[stateful.state() for stateful in self._remembering])
        return (*streams, self._sent) if self._prompts else streams

    def request(self, index: int, arrival_us: int, user: int = -1) -> Request:
        """Return the request that arrives at ``arrival_us``, the ``index``-th of all clients.

        If prompts repeat, ``user`` selects the prompt; -1 = they take turns.
        """
        if self._prompts:
            turn = self._sent if user < 0 else user
            self._sent += 1
            tokens, segments, drawn = self._prompts[turn % len(self._prompts)]
        else:
            head, segments = self._fresh
            tokens, drawn = self._new_text()
            tokens += head
        adapter = "" if self._adapters is None else self._adapters.draw()
        answer = self._outputs.sample(self._output_stream)
        request = self._request(index, arrival_us, tokens, answer, segments, "", 0, adapter)
        if drawn is not NOTHING_DRAWN:
            request.media = drawn.media
            request.media_items = placed(request, drawn.items, self._fresh[0])
        if self._reasons:
            ratio = 0.0 if self._ratios is None else self._ratios.sample(self._ratio_stream)
            request.reasoning = Reasoning(tokens_of(ratio, answer))
        return request

    def _new_text(self) -> tuple[int, DrawnMedia]:
        """Draw the number of tokens of the next prompt, and its media."""
        tokens = self._inputs.sample(self._input_stream)
        if self._media is None:
            return tokens, NOTHING_DRAWN
        drawn = self._media.draw(self._media_stream)
        return tokens + drawn.media.tokens, drawn

    def call(self, index: int, arrival_us: int, session: SessionRun, number: int) -> Request:
        """Return a call of a session that arrives at ``arrival_us``, as the ``index``-th request of all clients."""
        segments, answer = session.send(number)
        tokens = whole_sum([length for _, length in segments])
        request = self._request(index, arrival_us, tokens, answer, segments, session.name, number, session.adapter)
        request.content = under_adapter(session.adapter, session.content(number))
        request.media = session.media(number)
        if request.media is not NO_MEDIA:
            request.media_items = session.media_items(number, request)
        if self._reasons:
            request.reasoning = Reasoning(session.reasoning_tokens(number))
        return request

    def _request(
        self,
        index: int,
        arrival_us: int,
        input_tokens: int,
        output_tokens: int,
        segments: Segments,
        session_id: str = "",
        round_index: int = 0,
        adapter: str = "",
    ) -> Request:
        request = Request(
            index,
            "",
            arrival_us,
            input_tokens,
            output_tokens,
            segments,
            self._slo_class,
            self._tenant,
            arrival_us + self._timeout_us if self._timeout_us else 0,
            session_id,
            round_index,
            self._model,
            adapter,
        )
        request.network = self._network
        request.client = self._id
        request.ignore_eos = self._ignores_eos
        if self._budgets is not None:
            request.declare(self._budgets.draw(self._budget_stream, output_tokens))
        elif self._declared:
            request.declare(self._declared)
        return request


@mypyc_attr(allow_interpreted_subclasses=True)
class Budgets(Picklable):
    """The output budgets that a client's requests declare."""

    def __init__(self, budget: Budget, plugins: Registry) -> None:
        self._ratio = budget.ratio
        self._tokens = None if budget.tokens is None else _lengths(plugins, budget.tokens)

    def draw(self, stream: Stream, output_tokens: int) -> int | None:
        """Draw the next budget; None = undeclared."""
        if self._tokens is not None:
            return self._tokens.sample(stream)
        return None if self._ratio is None else max(1, int(self._ratio * output_tokens + 0.5))


def _cut_at(client: Client, answers: TokenCounts) -> int:
    """Default budget of a client whose answers end by EOS; 0 = declare exactly what it will get."""
    tells = client.session is not None and client.session.calls
    return answers.max_tokens if isinstance(answers, UntilEosTokens) and not tells else 0


def _lengths(plugins: Registry, config: PluginConfig) -> TokenCounts:
    return counts(plugins.create(LENGTHS, config.kind, config.settings), config.kind)


def _gaps_of(client: Client, share: float, workload: Workload, plugins: Registry) -> Gaps:
    if client.arrivals.kind == CLOSED_LOOP:
        return create_gaps(plugins, client.arrivals, 1.0)  # the rate is not used
    if client.rate_curve is not None:
        return CurvedGaps(create_gaps(plugins, client.arrivals, 1.0), client.rate_curve, workload.rate_per_s * share)
    if not workload.stages:
        return create_gaps(plugins, client.arrivals, workload.rate_per_s * share)
    if workload.exact_stage_counts:
        return ExactStages(workload.stages, share)
    return DrawnStages(create_gaps(plugins, client.arrivals, 1.0), workload.stages, share)


def client_sources(workload: Workload, seed: int, plugins: Registry) -> list[ClientSource]:
    """Create the sources of all clients that send anything.

    Raises:
        PolicyError: none does, or a distribution cannot be built.
    """
    streams = Streams(seed)
    open_loop = [client for client in workload.clients if client.arrivals.kind != CLOSED_LOOP]
    shares = fsum(client.share for client in open_loop)
    waiting = len(open_loop) < len(workload.clients)
    if not waiting and not (shares > 0.0 and (workload.rate_per_s > 0.0 or workload.stages)):
        raise PolicyError(
            f"workload {workload.name!r} generates no requests",
            help="it needs a positive rate_per_s and a client with a positive share",
        )
    return [
        ClientSource(client, client.share / shares if shares else 0.0, workload, streams, plugins)
        for client in workload.clients
        if client.share > 0.0
    ]
