"""Teams that stay warm between the jobs of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Launcher, Team

_Key = tuple[str, int, int, int, str, int, str, float, str]


class Teams:
    """A context manager: `team(job)` is the team that fits a job; all teams end with the block.

    A team is started once and stays warm, except for those that hold much memory while they idle
    (`Launcher.heavy_when_idle`), which `make_room` ends.
    """

    def __init__(self) -> None:
        self._launchers: dict[_Key, Launcher] = {}

    def team(self, job: Job) -> Team:
        key = _key(job)
        if key not in self._launchers:
            if job.launcher not in LAUNCHERS:
                raise ValueError(f"launcher={job.launcher!r} does not exist; there are: {', '.join(LAUNCHERS)}")
            self._launchers[key] = LAUNCHERS[job.launcher].of(job)
        return self._launchers[key].team

    def make_room(self, job: Job) -> None:
        """To be called before a job's team starts: ends all other teams that hold much memory; their next job starts
        them again."""
        for key, launcher in self._launchers.items():
            if launcher.heavy_when_idle and key != _key(job):
                launcher.team.close()

    def in_a_row(self, jobs: Sequence[Job], order: Iterable[int]) -> list[int]:
        """`order` (places in `jobs`) with all jobs of a team that is heavy when idle right after its first one."""
        order = list(order)
        turns = [_key(jobs[index]) if LAUNCHERS[jobs[index].launcher].heavy_when_idle else index for index in order]
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


def _key(job: Job) -> _Key:
    size = (job.launcher, job.ranks, job.threads_per_worker, job.cores_per_worker)
    # A process that has loaded TensorFlow would count its memory for cells of torch too.
    return (*size, job.environment, job.hosts, job.host_workers, job.link_bits_per_second, job.framework)
