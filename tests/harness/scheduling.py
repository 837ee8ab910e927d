"""Three processes run the suite on two cores, and the third takes what the other two leave.

Tests of MPI, failures and Spark wait for much of their time, for a heartbeat or a time-out, so that two processes leave
cores idle. But these tests also time what they see, and must not be crowded: the first two processes run them, before
anything else, and the third one gives way. It takes a group of these only where nothing else is left.

    gw0, gw1   one of them `serial`, the other one `spark`, and then whatever is left
    gw2        nice: what belongs to neither
"""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from harness.groups import SERIAL, SPARK

PROCESSES, GIVES_WAY, NICENESS = 3, "gw2", 5
_TIMED = (SERIAL, SPARK)


class Scheduling(LoadGroupScheduling):
    """Groups as pytest-xdist hands them out, the largest first, but for the two that are timed."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if gives_way(node.gateway.id, self.numnodes):
            first = next((group for group in self.workqueue if group not in _TIMED), None)
        else:
            first = next((group for group in _TIMED if group in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def gives_way(name: str, processes: int) -> bool:
    """Whether this is the third of three: of two, the one in place of a process that has crashed has its name."""
    return name == GIVES_WAY and processes == PROCESSES


def scheduling(config: pytest.Config, log: Producer | None) -> Scheduling | None:
    """For the hook `pytest_xdist_make_scheduler`: None, for pytest-xdist's own, unless groups were asked for."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def give_way(config: pytest.Config) -> None:
    """In the third process: it and all that it starts get a third of the time of whatever else wants a core."""
    worker = getattr(config, "workerinput", {})
    if worker and gives_way(worker["workerid"], worker["workercount"]):
        os.nice(NICENESS)
