"""The launcher `threads`: one process."""

from __future__ import annotations

from lockstep.engine.launch.base import Launcher


class Threads(Launcher):
    """All ranks are threads of one worker process."""

    does = "every worker is a thread of one process"
    label = "threads"
    one_host = True
    process_per_worker = False

    @staticmethod
    def ranks_by_process(workers: int) -> list[list[int]]:
        return [list(range(workers))]
