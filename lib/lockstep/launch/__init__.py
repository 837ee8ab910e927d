"""WHERE workers run. A new launcher is a file here and a line in `LAUNCHERS`."""

from lockstep.launch.base import Launcher, Processes, Threads, usable_cores
from lockstep.launch.team import Team
from lockstep.launch.watch import WorkerFailed

LAUNCHERS: dict[str, type[Launcher]] = {"threads": Threads, "processes": Processes}

__all__ = ["LAUNCHERS", "Launcher", "Processes", "Team", "Threads", "WorkerFailed", "usable_cores"]
