"""The scheduler of pytest-xdist for ``--dist loadgroup``, made faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Groups(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Forgets groups whose tests have all run.

    Whenever a test ends, xdist counts a worker's pending tests by going through all tests of every group that it was
    ever given. With a group for each test, this took a third of the controller's CPU time, on a core that the workers
    need.
    """

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a worker has run a test, and give it more if it has few left."""
        test = self.registered_collections[node][item_index]
        group = self._split_scope(test)
        tests = self.assigned_work[node][group]
        tests[test] = True
        if all(tests.values()):
            del self.assigned_work[node][group]
        self._reschedule(node)
