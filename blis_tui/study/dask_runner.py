"""Makes runs on an existing Dask cluster."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from blis_tui._version import ENGINE, __version__
from blis_tui.base.errors import InputError, SimulationError, install_command
from blis_tui.study.runners import Runner
from blis_tui.study.task import Outcome, execute

if TYPE_CHECKING:
    from distributed import Future

    from blis_tui.study.task import Task

_PACKAGE: Final = "blis-tui"
_ANSWER_S: Final = 5
_WORKERS_S: Final = 30
"""How long to wait for the first worker of a cluster, in seconds."""
_LOOK_EVERY_S: Final = 5.0
"""Interval between counts of the workers, because a cluster may grow."""
_AHEAD: Final = 2


class DaskRunner(Runner):
    """Runs tasks on a cluster, one per thread of its workers.

    Workers need this version of the package, and must see files (recorded workloads, scripts with plug-ins) under the
    same paths. If a worker dies, Dask gives its tasks to another one; a task that has killed several workers
    (``distributed.scheduler.allowed-failures``) fails.

    Args:
        address: address of the scheduler, such as ``tcp://10.0.0.5:8786``.

    Raises:
        InputError: the extra is not installed, nothing answers, there are no workers, or they have another version.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client, as_completed  # noqa: PLC0415  (an extra that may be missing)
        except ImportError:
            raise InputError(
                "a Dask cluster needs an extra package", help=f"{install_command('distributed')}, or use --jobs"
            ) from None
        self._address = address
        with ThreadPoolExecutor(1) as aside:  # this thread may already have an event loop, as in notebooks
            aside.submit(asyncio.run, _require_scheduler(address)).result()
        self._client = Client(address, timeout=_ANSWER_S, set_as_default=False)
        try:
            self._require_workers()
        except BaseException:
            self._client.close()
            raise
        self._tasks: dict[Future[Outcome], Task] = {}
        self._ended = as_completed(loop=self._client.loop)
        self._threads = 1
        self._looked_s = -_LOOK_EVERY_S

    @property
    def name(self) -> str:
        """See :attr:`Runner.name`."""
        return f"the Dask cluster at {self._address}"

    @property
    def room(self) -> bool:
        """See :attr:`Runner.room`."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            try:
                self._threads = max(1, sum(self._client.nthreads().values()))
            except (OSError, RuntimeError) as error:
                raise self._gone(error) from error
        return len(self._tasks) < self._threads * _AHEAD

    @property
    def busy(self) -> bool:
        """See :attr:`Runner.busy`."""
        return bool(self._tasks)

    def start(self, task: Task) -> None:
        """See :meth:`Runner.start`."""
        future = self._client.submit(execute_as, task, ENGINE, pure=False)
        self._tasks[future] = task
        self._ended.add(future)

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        """See :meth:`Runner.collect`."""
        if not self._tasks:
            return []
        return [(self._tasks.pop(future), self._outcome(future)) for future in self._ended.next_batch(block=block)]

    def cancel(self) -> None:
        """See :meth:`Runner.cancel`; workers finish runs that have begun, whose results are dropped."""
        if self._tasks:
            self._client.cancel(list(self._tasks), force=True)
            self._tasks.clear()
            self._ended.clear()

    def close(self) -> None:
        """See :meth:`Runner.close`."""
        self.cancel()
        self._client.close()

    def _outcome(self, future: Future[Outcome]) -> Outcome:
        from distributed import KilledWorker  # noqa: PLC0415

        try:
            outcome: Outcome = future.result()
        except KilledWorker as error:
            count = error.allowed_failures + 1
            return Outcome(status="failed", why=f"its workers died {count} times: was there too little memory?")
        except SimulationError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            raise self._gone(error) from error
        return outcome

    def _gone(self, error: BaseException) -> SimulationError:
        return SimulationError(
            f"the Dask cluster at {self._address} makes no runs any more: {type(error).__name__}: {error}"
        )

    def _require_workers(self) -> None:
        """Check that there are workers, and that all have this version. Raises InputError otherwise."""
        try:
            self._client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError:
            raise InputError(
                f"the Dask cluster at {self._address} has no workers", help=f"start some: dask worker {self._address}"
            ) from None
        versions = self._client.run(version, _PACKAGE, on_error="return")
        for worker, its in versions.items():
            if its != __version__:
                theirs = f"blis-tui {its}" if isinstance(its, str) else "no blis-tui"
                raise InputError(
                    f"the Dask worker at {worker} has {theirs}, and this is {__version__}",
                    help="results of other versions may differ: install the same one everywhere",
                )


async def _require_scheduler(address: str) -> None:
    """Check that a scheduler answers, because a client would retry forever. Raises InputError otherwise."""
    from distributed import rpc  # noqa: PLC0415

    try:
        async with asyncio.timeout(_ANSWER_S), rpc(address, timeout=_ANSWER_S) as peer:
            identity = await peer.identity()
        problem = "" if identity["type"] == "Scheduler" else f"it is a Dask {identity['type']}"
    except (OSError, ValueError) as error:
        problem = str(error) or f"nothing within {_ANSWER_S} seconds"
    except Exception:  # noqa: BLE001  (Dask may fail in any way to decode another program's answer)
        problem = "what answers is something else"
    if problem:
        help_text = "give the address that it prints, such as tcp://10.0.0.5:8786"
        raise InputError(f"no Dask scheduler answers at `{address}`: {problem}", help=help_text)


def execute_as(task: Task, engine: str) -> Outcome:
    """Run a task on a worker as :func:`execute` does. Raises SimulationError if the worker has another engine."""
    if engine != ENGINE:
        raise SimulationError(f"a Dask worker that has come later has engine {ENGINE}, and results of {engine} are due")
    return execute(task)
