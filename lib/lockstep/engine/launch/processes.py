"""The launcher `processes`: this machine's own processes."""

from __future__ import annotations

from lockstep.engine.launch.base import Launcher


class Processes(Launcher):
    """A worker process per rank."""

    does = "every worker is a process of this machine"
    label = "processes"
    one_host = True

    @staticmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        return [[rank] for rank in range(workers)]
