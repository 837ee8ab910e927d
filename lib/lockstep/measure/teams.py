"""Teams that stay warm between the jobs of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import cast

from lockstep.engine import registry
from lockstep.engine.cgroups import free_memory
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Launcher, Team

GIB = 2**30
START_BYTES, CELL_BYTES = 16 * GIB, 8 * GIB
"""What must be free before a heavy team starts, and before any other cell: the most that training on Spark, and two
replicas of VGG16, were seen to use."""


_Key = tuple[str, int, int, int, str, int, str, float, str]


class Teams:
    """A context manager: `team(job)` is the team that fits a job; all teams end with the block.

    A team is started once and stays warm, except for those that hold much memory while they idle
    (`Launcher.heavy_when_idle`): where memory gets scarce, `make_room` ends them, the longest unused first.
    """

    def __init__(self, free: Callable[[], int] = free_memory) -> None:
        self._launchers: dict[_Key, Launcher] = {}
        self._heavy: list[_Key] = []  # that were started, the longest unused first
        self._free = free

    def team(self, job: Job) -> Team:
        key = _key(job)
        if key not in self._launchers:
            self._launchers[key] = _launcher(job).of(job)
        return self._launchers[key].team

    def make_room(self, job: Job) -> None:
        """To be called before a job's team starts: ends other teams that hold much memory until there is enough for it.
        Their next job starts them again, which takes some ten seconds: a round A B B A restarts neither if it can."""
        key = _key(job)
        warm = key in self._heavy
        if warm:
            self._heavy.remove(key)
        heavy = _launcher(job).heavy_when_idle
        needed = START_BYTES if heavy and not warm else CELL_BYTES
        while self._heavy and self._free() < needed:
            self._launchers[self._heavy.pop(0)].team.close()
        if heavy:
            self._heavy.append(key)

    def in_a_row(self, jobs: Sequence[Job], order: Iterable[int]) -> list[int]:
        """`order` (places in `jobs`) with all jobs of a team that is heavy when idle right after its first one."""
        order = list(order)
        turns = [_key(jobs[index]) if _launcher(jobs[index]).heavy_when_idle else index for index in order]
        return [index for _, index in sorted(zip(turns, order, strict=True), key=lambda pair: turns.index(pair[0]))]

    def placements(self) -> list[dict[str, object]]:
        """Affinity and threads of every rank, for run.json."""
        return [
            {
                "launcher": name,
                "workers": workers,
                "threads_per_worker": threads,
                "environment": environment,
                "hosts": hosts,
                "host_workers": each,
                "link_bits_per_second": link,
                "framework": framework,
                "cores_of_rank": launcher.team.cores,
            }
            for (name, workers, threads, _, environment, hosts, each, link, framework), launcher in sorted(
                self._launchers.items(), key=lambda item: item[0]
            )
        ]

    def __enter__(self) -> Teams:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for launcher in self._launchers.values():
            launcher.__exit__(kind, error, at)


def _launcher(job: Job) -> type[Launcher]:
    """Raises ValueError for one that does not exist."""
    found = LAUNCHERS.get(job.launcher) or registry.launcher_of(job.launcher)  # the second knows virtual time, too
    if found is None:
        raise ValueError(f"launcher={job.launcher!r} does not exist; there are: {', '.join(LAUNCHERS)}")
    return cast("type[Launcher]", found)


def _key(job: Job) -> _Key:
    size = (job.launcher, job.ranks, job.threads_per_worker, job.cores_per_worker)
    # A process that has loaded TensorFlow would count its memory for cells of torch too.
    return (*size, job.environment, job.hosts, job.host_workers, job.link_bits_per_second, job.framework)
