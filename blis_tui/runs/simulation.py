"""A simulation that can be stepped, run, inspected, saved, restored and subscribed to."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from blis_tui._version import ENGINE, __version__
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError, InvariantError, SimulationError, in_words
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.decisions import RouteOverrides, normalized_overrides
from blis_tui.cluster.invariants import CLUSTER_INVARIANTS, INVARIANTS, outcomes
from blis_tui.cluster.state import FIGURES, AddressError, address_holder, digest
from blis_tui.engine.records import Observers, Record, record_classes
from blis_tui.model import Experiment
from blis_tui.model.plug_ins import place_in_plugin
from blis_tui.results.report import build_report, latencies_so_far, run_checks
from blis_tui.results.request_log import RequestLog
from blis_tui.runs.checkpoints import SHARED_PARTS_AND_LOG, objects_from, packed, unpacked
from blis_tui.workload.source import create_source, fixed_part, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from blis_tui.cluster.snapshot import KvSharing, PendingEvent, RequestSnapshot, Snapshot
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Latencies, Report
    from blis_tui.results.request_log import LogMark
    from blis_tui.workload.source import RequestSource

SLICE_EVENTS: Final = 20_000
"""Events between two checks whether to go on: about 50 ms of ordinary steps, more under KV pressure."""

CHECKS: Final = ("all", "end", "off")

_MAGIC: Final = b"blis-tui checkpoint\n"
_SEAL_BYTES: Final = len(_MAGIC) + 2 * sha256().digest_size

_P = ParamSpec("_P")
_R = TypeVar("_R", bound=Record)
_T = TypeVar("_T")


@runtime_checkable
class _Stateful(Protocol):
    def state(self) -> tuple[object, ...]: ...


_SAVING: Final = ("checkpoint", "mark")
"""Methods that need what plug-ins remember as bytes."""


def _attributing_failures(
    method: Callable[Concatenate[Simulation, _P], _T],
) -> Callable[Concatenate[Simulation, _P], _T]:
    """Convert exceptions that a user's plug-in raises or causes into errors with their place."""

    @wraps(method)
    def called(self: Simulation, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(self, *args, **kwargs)
        except BlisError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            moment = f"after event {self.events}" if self.is_consistent else f"at event {self.events + 1}"
            failed = _failed_plugin(self.experiment, error, moment, saving=method.__name__ in _SAVING)
            if failed is None:
                raise
            raise failed from error

    return called


def _failed_plugin(
    experiment: Experiment, error: BaseException, moment: str, *, saving: bool = False
) -> SimulationError | None:
    """Create the error for a failure in or because of users' plug-ins; None = the experiment has none.

    ``saving``: the failure was in pickling what they remember, not in an answer.
    """
    used = experiment.plugins_used()
    place = place_in_plugin(error, [plugin.module for plugin in used]) if used else ""
    if not used or (not place and not isinstance(error, Exception)):
        return None
    names = ", ".join(f"`{plugin.name}`" for plugin in used)
    unusable = f"one of the plug-ins {names} takes other arguments than its protocol says, or answers something else"
    unsaved = f"one of the plug-ins {names} remembers what does not pickle: keep plain values"
    advice = place or (unsaved if saving else unusable)
    return SimulationError(in_words(error, moment), help=advice)


def _overflow_error(error: BaseException) -> SimulationError | None:
    """Create the error for numbers that have grown too large, unless a plug-in's; None = another error."""
    if not isinstance(error, OverflowError) or place_in_plugin(error):
        return None
    return SimulationError(
        "a time exceeds 2**63 microseconds, about 292,000 years",
        help="look at the rates of the workload and the coefficients of the step-time model",
    )


@dataclass(frozen=True, slots=True)
class Since:
    """A moment of a run that a report may leave out everything before, like ``warm_up_us``."""

    time_us: int
    gaps: list[dict[int, int]]
    """Inter-token gaps of each instance until then (microseconds -> count)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a run to return to: a light checkpoint, usable only by simulations that share its request log.

    It contains the state without the books of ended requests: these only grow, so their length suffices.
    """

    event: int
    time_us: int
    content: bytes
    log: LogMark

    @property
    def size_bytes(self) -> int:
        """Size in memory."""
        return len(self.content)


class _Archive:
    """The longest request log of several simulations of one experiment; the other logs are prefixes of it."""

    def __init__(self, log: RequestLog) -> None:
        self.log = log


class Simulation:
    """One run of an experiment, from its first event to its last.

    Args:
        experiment: what to simulate (see :func:`blis_tui.load`).
        check: when to verify the invariants: after every event (``all``), in the report (``end``), or never (``off``).
        routes: routing decisions to override: request -> index of its instance, or a ``Reroute`` (which decision).
        source: source of requests instead of the experiment's workload.

    Attributes:
        log: the books of ended requests; read-only.
        left_out: parts of a recorded workload that are not requests by the trace's format.

    Raises:
        TraceError: rows of a recorded workload are wrong.
        PolicyError: a policy does not exist or rejects its settings.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        check: str = "end",
        routes: RouteOverrides | None = None,
        source: RequestSource | None = None,
    ) -> None:
        if not isinstance(experiment, Experiment):
            raise TypeError(f"not an experiment but {type(experiment).__name__}: load one with blis_tui.load()")
        if check not in CHECKS:
            raise ValueError(f"check must be one of {', '.join(CHECKS)}, not {check!r}")
        self.experiment = experiment
        self._check = check
        self._observers = Observers()
        self.log = RequestLog(detours=experiment.has_detours, facts=experiment.request_facts)
        self._archive = _Archive(self.log)
        self._routes = normalized_overrides(routes)
        self._broken = False
        self._advancing = False
        # If a plug-in fails, the error gives the number of the event.
        self._one_by_one = bool(experiment.plugins_used())
        self._look: Callable[[], None] | None = None
        self._in_step = False
        self._repeatable = source is None
        try:
            if source is None:
                source = create_source(experiment.workload, experiment.seed, experiment.plugins)
            self._cluster = Cluster(experiment, source, self.log, self._observers, self._routes)
        except BlisError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failed = _overflow_error(error) or _failed_plugin(experiment, error, "before the first event")
            if failed is None:
                raise
            raise failed from error
        # Parts that checkpoints leave out, by their names there.
        self._parts = self._cluster.registry.fixed_parts()
        self._fixed: dict[str, object] = {"experiment": experiment, "observers": self._observers, **self._parts}
        if (trace := fixed_part(source)) is not None:
            self._fixed["trace"] = trace
        table = table_of(source)
        self.left_out = () if table is None else table.left_out

    # ---- running ----

    @property
    def now_us(self) -> int:
        """Simulated time of the latest event, in microseconds."""
        return self._cluster.now

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._cluster.events

    @property
    def done(self) -> bool:
        """Whether nothing more will happen (within the horizon)."""
        return not self._in_step and self._cluster.next_event_us() is None

    @property
    def is_consistent(self) -> bool:
        """Whether its state is reliable: no exception has interrupted it in the middle of an event."""
        return not self._broken

    @property
    def arrived(self) -> int:
        """Number of requests that have arrived so far."""
        return self._cluster.arrived

    @property
    def ended(self) -> int:
        """Number of requests that have completed, or ended otherwise, so far."""
        return self._cluster.closed()

    @property
    def unused_routes(self) -> tuple[str, ...]:
        """Requests of ``routes`` whose decision has not been overridden so far."""
        return tuple(self._cluster.dispatcher.route_overrides)

    @property
    def cluster(self) -> Cluster:
        """The live state; read-only."""
        self._require_consistent()
        return self._cluster

    def peek(self) -> PendingEvent | None:
        """The next event; None at the end."""
        from blis_tui.cluster.snapshot import peek  # noqa: PLC0415  (only needed by observers)

        return peek(self._cluster)

    def step(self) -> PendingEvent | None:
        """Process one event and return it; None when there was none left.

        Raises:
            StalledError: the simulation cannot go on.
            InvariantError: with ``check="all"``, an invariant does not hold afterwards.
        """
        upcoming = self.peek()
        if upcoming is not None:
            self._advance(1, None)
        return upcoming

    def run(
        self,
        until_us: int | None = None,
        *,
        max_events: int | None = None,
        go_on: Callable[[Simulation], bool] | None = None,
    ) -> bool:
        """Process events up to and including ``until_us``, or all of them.

        Args:
            until_us: the last microsecond to simulate; None = to the end.
            max_events: maximum number of events to process; None = unlimited.
            go_on: called every few ten thousand events; if it returns False, the run stops between two events.

        Returns:
            False if ``go_on`` or :meth:`stop` stopped it.
        """
        for name, given in (("until_us", until_us), ("max_events", max_events)):
            if given is not None and not hasattr(given, "__index__"):  # the engine would fail in the middle of an event
                raise TypeError(f"{name} is a whole number, not {given!r}")
        exact = self._check == "all" or max_events is not None
        stride = 1 if self._check == "all" else SLICE_EVENTS
        left = max_events
        count = 0
        while left is None or left > 0:
            size = stride if left is None else min(stride, left)
            processed = self._advance(size, until_us, exact=exact)
            if self._cluster.stopping:
                self._cluster.stopping = False
                return False
            if processed < size:
                break
            if left is not None:
                left -= processed
            count += processed
            if go_on is not None and count >= SLICE_EVENTS:
                count = 0
                if not go_on(self):
                    return False
        return True

    def stop(self) -> None:
        """Let :meth:`run` return False after its current event (or its first one, if it is not running).

        Safe in signal handlers: it takes no lock and touches nothing that events use.
        """
        self._cluster.stopping = True

    @_attributing_failures
    def _advance(self, events: int, until_us: int | None, *, exact: bool = True) -> int:
        self._require_consistent()
        self._require_idle()
        if self._look is not None:
            self._pause_in_steps(self._pause)
        self._cluster.one_by_one = self._one_by_one or self._look is not None
        self._advancing = True
        try:
            processed = self._cluster.run(events, until_us, exact=exact)
            self.log.flush()
        except BaseException as error:
            # An event was interrupted halfway, so the state is unreliable from now on.
            self._broken = True
            if (failed := _overflow_error(error)) is not None:
                raise failed from error
            raise
        finally:
            self._advancing = False
            # Checkpoints must not contain observers.
            if self._look is not None:
                self._pause_in_steps(None)
        if processed and self._check == "all":
            try:
                self.verify()
            except Exception:  # not for an interruption during the check, which does no harm
                self._broken = True
                raise
        return processed

    def _pause(self) -> None:
        """Let the caller look at the simulation in the middle of a step, whose end is no event of the queue yet."""
        if self._look is not None:
            self._in_step = True
            try:
                self._look()
            finally:
                self._in_step = False

    def _pause_in_steps(self, look: Callable[[], None] | None) -> None:
        for instance in self._cluster.instances:
            instance.pause_in_steps(look)

    def _require_consistent(self) -> None:
        if self._broken:
            raise SimulationError(
                "an exception interrupted this simulation in the middle of an event",
                help="restore a checkpoint, or start again",
            )

    def _require_idle(self) -> None:
        """Refuse what changes, saves or checks the state while an event is processed: it is between two states."""
        if self._advancing:
            raise SimulationError(
                "while a simulation runs, no subscriber or other thread can advance, save, restore or check it",
                help="let the subscriber call `stop()`, and do it when `run()` has returned",
            )

    # ---- inspection ----

    @_attributing_failures
    def snapshot(self, window: int | None = None) -> Snapshot:
        """Return a frozen snapshot for readers.

        Args:
            window: number of requests to include from the head of each queue and batch; None = all of them.
        """
        from blis_tui.cluster.snapshot import take_snapshot  # noqa: PLC0415  (as above)

        self._require_consistent()
        return take_snapshot(self._cluster, window)

    def figure(self, name: str, instance: int | None = None) -> float:
        """Return one number about the state, by its name in ``FIGURES``, of the cluster or of one instance.

        Raises:
            KeyError: there is no such figure, or it is undefined for one instance.
        """
        self._require_consistent()
        known = FIGURES[name]
        if instance is None:
            return known.of_cluster(self._cluster)
        if known.of_instance is None:
            raise KeyError(name)
        return known.of_instance(self._cluster.instances[instance])

    def request(self, name: str) -> RequestSnapshot | None:
        """Return a snapshot of a live request; None = there is none of that name."""
        from blis_tui.cluster.snapshot import find_request  # noqa: PLC0415  (as above)

        self._require_consistent()
        return find_request(self._cluster, name)

    def kv_sharing(self, name: str) -> KvSharing | None:
        """Return with whom a running request shares KV blocks; None = no request of that name runs."""
        from blis_tui.cluster.snapshot import kv_sharing  # noqa: PLC0415  (as above)

        self._require_consistent()
        return kv_sharing(self._cluster, name)

    @_attributing_failures
    def digest(self) -> str:
        """Return a digest of the whole state: equal digests mean equal futures.

        Raises:
            SimulationError: a plug-in's ``state()`` contains something other than plain values.
        """
        self._require_consistent()
        try:
            return digest(self._cluster)
        except AddressError as error:
            raise self._address_error() from error

    def _address_error(self) -> SimulationError:
        """Create the error that names whose state contains an object's address, and the object's type."""
        from blis_tui.spec.plug_points import BY_PATH  # noqa: PLC0415  (rarely needed)

        whose, kind = "a plug-in", "object"
        for plugin in self.experiment.plugins_used():
            for part in self.parts_from({plugin.module}):
                holder = address_holder(part.state()) if isinstance(part, _Stateful) else ""
                if holder and (not isinstance(plugin.make, type) or isinstance(part, plugin.make)):
                    whose, kind = f"the {BY_PATH[plugin.path].point.noun} `{plugin.name}`", holder
        return SimulationError(
            f"`state()` of {whose} has a value of the kind `{kind}`, which looks another in every process",
            help="say what is remembered as plain values: text, numbers, and tuples of them",
        )

    def parts_from(self, modules: Collection[str]) -> list[object]:
        """Return the objects in its state whose classes are from these modules, such as a plug-in's policies."""
        return objects_from(modules, self._cluster)

    @_attributing_failures
    def verify(self) -> None:
        """Check every invariant now. Raises InvariantError at the first violation."""
        self._require_idle()
        for invariant in (*INVARIANTS, *CLUSTER_INVARIANTS):
            wrong = invariant.verdict(self._cluster)
            if wrong:
                raise InvariantError(invariant.identifier, wrong, time_us=self.now_us, event=self.events)

    @_attributing_failures
    def since(self) -> Since:
        """Return this moment, for a report on what comes after it."""
        self._require_consistent()
        return Since(self.now_us, [dict(instance.tallies.itl_us) for instance in self._cluster.instances])

    def report_since(self, since: Since) -> Report:
        """Return the report as of now, as if ``warm_up_us`` had ended at a moment."""
        experiment, warm_up = self.experiment, self.cluster.warm_up
        if since.time_us <= experiment.warm_up_us:
            return self.report(complete=True, by_clock=True)
        before = warm_up.replaced(since.gaps)
        self.experiment = replace(experiment, warm_up_us=since.time_us)
        try:
            return self.report(complete=True, by_clock=True)
        finally:
            self.experiment = experiment
            warm_up.counted = before

    def report(self, *, complete: bool | None = None, verify: bool = True, by_clock: bool = False) -> Report:
        """Return the report as of now.

        Args:
            complete: the value of ``meta.complete``; None = whether the simulation is done.
            verify: whether to check the invariants, which takes time in proportion to the state.
            by_clock: whether first tokens and ends count only from when they come, and first tokens only until a
                preemption takes them back, if the simulation is not done.

        Raises:
            SimulationError: an exception interrupted the simulation in the middle of an event, or with ``verify`` a
                subscriber asks there.
        """
        self._require_consistent()
        verify = verify and self._check != "off"
        if verify:
            self._require_idle()
        report = build_report(
            self.experiment,
            self._cluster,
            self.log,
            complete=self.done if complete is None else complete,
            duration_us=self._duration_us(),
            invariants=outcomes(self._cluster, verify=verify),
            now_us=self.now_us if by_clock and not self.done else None,
            left_out=self.left_out,
        )
        return self._with_course(report) if self.experiment.course and self.done and self._repeatable else report

    def _with_course(self, report: Report) -> Report:
        """Add verdicts on the course of the run, which is repeated from its beginning for them."""
        from blis_tui.results.conditions.course import judged  # noqa: PLC0415  (few experiments need it)

        again = Simulation(self.experiment, check="off", routes=self._routes)
        verdicts = judged(self.experiment.course, self.experiment, again)
        return replace(report, expectations=(*report.expectations, *verdicts))

    @_attributing_failures
    def checkup(self) -> Checkup:
        """Run the checks behind the report's warnings now, in time proportional to the requests so far.

        Raises:
            SimulationError: an exception interrupted the simulation in the middle of an event.
        """
        self._require_consistent()
        return run_checks(self.experiment, self._cluster, self.log, duration_us=self._duration_us(), done=self.done)

    @_attributing_failures
    def latencies(self) -> Latencies:
        """Return the latencies of ``report(by_clock=True)``, in time proportional to the requests so far.

        Raises:
            SimulationError: an exception interrupted the simulation in the middle of an event.
        """
        self._require_consistent()
        return latencies_so_far(self.experiment, self._cluster, self.log, None if self.done else self.now_us)

    def _duration_us(self) -> int:
        """Time of the latest event, or the horizon if that ended the run."""
        horizon = self._cluster.horizon_us
        cut = horizon is not None and self.done and self._cluster.queue.head() is not None
        return horizon if cut and horizon is not None else self.now_us

    # ---- subscriptions ----

    def subscribe(self, kind: type[_R] | str, callback: Callable[[_R], None]) -> Callable[[], None]:
        """Call ``callback`` with each record of ``kind`` (a record class, its name, or ``all``) from now on.

        ``all`` is the record stream; on-demand kinds such as ``routing-decision`` must be named.

        Returns a function that ends the subscription. Subscriptions do not affect a simulation's results: a callback
        may look at the state, which is that in the middle of the event, and call :meth:`stop`.

        Raises:
            ValueError: there is no such kind of record.
            TypeError: ``kind`` is neither a class of records nor a name, or ``callback`` cannot be called.
        """
        if not callable(callback):
            raise TypeError(f"a subscriber is called with each record, so it cannot be {callback!r}")
        kinds = record_classes(kind)
        self._observers.add_all(kinds, callback)  # type: ignore[arg-type]

        def unsubscribe() -> None:
            self._observers.remove_all(kinds, callback)  # type: ignore[arg-type]

        return unsubscribe

    def pause_in_steps(self, look: Callable[[], None]) -> Callable[[], None]:
        """Call ``look`` in the middle of each step from now on, when the batch is formed but nothing is computed yet.

        It may inspect the simulation, but not advance it. Returns a function that ends the calls.
        """
        self._look = look

        def stop() -> None:
            self._look = None

        return stop

    # ---- checkpoints ----

    @_attributing_failures
    def checkpoint(self) -> bytes:
        """Return the whole state as bytes, for :meth:`restore` on a simulation of the same experiment and engine.

        Raises:
            SimulationError: it is running, or a plug-in remembers what cannot be saved.
        """
        self._require_consistent()
        self._require_idle()
        content = packed((self._cluster, self.log), parts=self._parts)
        return self._seal(content) + content

    @_attributing_failures
    def mark(self) -> Mark:
        """Create a light checkpoint for :meth:`return_to`, on this simulation or a twin of it."""
        self._require_consistent()
        self._require_idle()
        if len(self.log) > len(self._archive.log):
            self._archive.log = self.log
        return Mark(self.events, self.now_us, packed(self._cluster, SHARED_PARTS_AND_LOG, self._parts), self.log.mark())

    @_attributing_failures
    def return_to(self, mark: Mark) -> None:
        """Go to where ``mark`` was taken, forwards or backwards; subscriptions stay."""
        if len(self.log) > len(self._archive.log):
            self._archive.log = self.log
        log = self._archive.log.up_to(mark.log)
        self._take(cast("Cluster", unpacked(mark.content, {**self._fixed, "log": log})), log)

    def twin(self, at: Mark, *, routes: RouteOverrides | None = None) -> Simulation:
        """Create another simulation of the same experiment at a mark, without subscribers.

        ``routes``: routing decisions after the mark to override, in addition to this simulation's overrides.
        """
        more = normalized_overrides(routes)
        other = object.__new__(Simulation)
        other.experiment = self.experiment
        other._check = self._check
        other._routes = {**self._routes, **more}
        other._one_by_one = self._one_by_one
        other._look = None
        other._in_step = False
        other._advancing = False
        other._repeatable = self._repeatable
        other._observers = Observers()
        other.log = RequestLog()
        other._archive = self._archive
        other.left_out = self.left_out
        other._parts = self._parts
        other._fixed = {**self._fixed, "observers": other._observers}
        other.return_to(at)
        other._cluster.dispatcher.route_overrides.update(more)
        return other

    @_attributing_failures
    def restore(self, checkpoint: bytes) -> None:
        """Go to where ``checkpoint`` was taken, forwards or backwards; subscriptions stay.

        Only restore bytes from a trusted source: like every pickle, they can run code.

        Raises:
            InputError: the bytes are not a checkpoint of this experiment by this engine, or are damaged.
        """
        content = checkpoint[_SEAL_BYTES:]
        if checkpoint[:_SEAL_BYTES] != self._seal(content):
            raise InputError("these bytes are not a checkpoint of this experiment by this engine, or are damaged")
        self._take(*cast("tuple[Cluster, RequestLog]", unpacked(content, self._fixed)))

    def why_whole(self) -> str:
        """Return why processes cannot share the run with the same results (``runs.shares``); empty = they can."""
        from blis_tui.cluster.share import why_whole  # noqa: PLC0415  (few runs are shared)

        if self._check == "all":
            return "invariants are verified after every event"
        if self._observers.kinds or self._look is not None:
            return "records are written in the order of events"
        if not self._repeatable or self.events:
            return "it depends on what has happened"
        return why_whole(self.experiment, self._cluster.pipeline)

    def take_shares(self, shares: Sequence[bytes]) -> None:
        """Go to the end of the run, where processes that simulated a share of the instances each left it.

        Args:
            shares: what ``blis_tui.runs.shares.simulated_share`` returned for each share.
        """
        states = [cast("tuple[Cluster, RequestLog]", unpacked(share, self._fixed)) for share in shares]
        cluster, log = states[0]
        for number, (other, rows) in enumerate(states[1:], 1):
            cluster.take_over(other, range(number, len(cluster.instances), len(shares)))
            log.take_over(rows)
        self._take(cluster, log)

    def _take(self, cluster: Cluster, log: RequestLog) -> None:
        self._require_idle()
        self._cluster = cluster
        self.log = log
        self._broken = False

    def _seal(self, content: bytes) -> bytes:
        """Return the header that a checkpoint's content must have."""
        used = "".join(f" {plugin.name} {plugin.origin}" for plugin in self.experiment.plugins_used())
        routes = "".join(f" {name} to {route.instance} at {route.event}" for name, route in self._routes.items())
        about = f"{__version__} {ENGINE} {self.experiment.sha256}{used}{routes}".encode()
        return _MAGIC + sha256(about).digest() + sha256(content).digest()
