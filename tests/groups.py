"""How pytest-xdist hands out tests here: in the groups of ``--dist loadgroup``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Groups(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Forgets groups whose tests have all run.

    Whenever a test ends, xdist counts what a worker has yet to run by going through all that it was ever given: with
    thousands of groups, a third of what the process that hands them out computes, while the workers want its core.
    """

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a worker has run a test, and give it more where it has little left."""
        test = self.registered_collections[node][item_index]
        group = self._split_scope(test)
        tests = self.assigned_work[node][group]
        tests[test] = True
        if all(tests.values()):
            del self.assigned_work[node][group]
        self._reschedule(node)
