"""Teams whose ranks are ipyparallel engines of one MPI job: the MPI workers of a notebook.

    launcher --- guard --- ipcontroller
        |          |------ mpiexec --- proxy --- engine 0 = rank 0, engine 1 = rank 1 ...
        |                                            |
        +--- apply_async, through the controller ----+      calls
        +--- control: a socket per engine -----------+      results, tracebacks, and that it still lives

The cluster's files are in a private folder (IPYTHONDIR), so no other cluster of this machine is met by mistake. The
guard ends controller and engines together, also after kill -9 of the launcher or a start that fails half-way.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from typing import Any

from lockstep.launch.engine import call, is_whole, join_launcher
from lockstep.launch.guarded import seated
from lockstep.launch.mpi_commands import command
from lockstep.launch.mpi_team import MpiTeam
from lockstep.launch.mpiexec import Mpiexec
from lockstep.launch.rendezvous import Meeting
from lockstep.launch.team import Team
from lockstep.launch.watch import WorkerFailed

_ENGINE = "from lockstep.launch.engine import main; main()"
# An engine counts as registered at a heartbeat, by default every 3 s; none is given up for being late with an answer.
_HEARTBEAT = ["--HeartMonitor.period=500", "--HeartMonitor.max_heartmonitor_misses=240"]
_CONFIRM_SECONDS = 30.0  # for ipyparallel to say that calls have ended which have ended


class EnginesTeam(MpiTeam):
    """`Team` on engines of a cluster of its own."""

    _client: Any = None
    _calling: Any = None

    @property
    def client(self) -> Any:
        """The `ipyparallel.Client` of this cluster, for %%px and the like; None before the first call."""
        return self._client

    def _commands(self, meeting: Meeting) -> dict[str, list[str]]:
        common = [f"--ipython-dir={meeting.folder}", "--log-level=WARN"]
        controller = [sys.executable, "-m", "ipyparallel.controller", *common]
        controller += ["--ip=127.0.0.1", "--nodb", "--usethreads", *_HEARTBEAT]
        engine = [sys.executable, "-c", _ENGINE, *common, "--mpi", f"--file={_security(meeting, 'engine')}"]
        engine += ["--IPEngine.enable_nanny=False"]
        return {
            "ipcontroller": controller,
            "mpiexec": command(self._mpi, self.size, [*seated(meeting.ends_path), *engine]),
        }

    def _environment(self, meeting: Meeting) -> dict[str, str]:
        return super()._environment(meeting) | {"IPYTHONDIR": meeting.folder}

    def _meet(self, meeting: Meeting, deadline: float) -> None:
        self._client = self._connect(meeting, deadline)
        targets = list(range(self.size))
        if sorted(self._client.ids) != targets:
            raise self._unable(f"gave engines {sorted(self._client.ids)} instead of {targets}", {})
        # One by one, since each is told its own number; all are under way before anybody is waited for.
        self._calling = [self._client[each].apply_async(join_launcher, meeting.path, each) for each in targets]
        super()._meet(meeting, deadline)
        for joining in self._calling:
            joining.get(timeout=_CONFIRM_SECONDS)
        self._calling = None

    def _connect(self, meeting: Meeting, deadline: float) -> Any:
        """A client that sees all engines. Raises WorkerFailed."""
        import ipyparallel

        assert self._guard is not None
        file = _security(meeting, "client")
        while not is_whole(file):
            self._still_starting(deadline, "the controller has written no connection file")
            time.sleep(0.05)
        with warnings.catch_warnings(action="ignore"):
            client = ipyparallel.Client(file, timeout=max(1.0, deadline - time.monotonic()))
        try:
            while len(client.ids) < self.size:
                self._still_starting(deadline, f"{len(client.ids)} of {self.size} engines have registered")
                time.sleep(0.05)
        except BaseException:
            client.close()
            raise
        return client

    def _still_starting(self, deadline: float, what: str) -> None:
        assert self._guard is not None
        if self._guard.ended() or time.monotonic() > deadline:
            raise self._unable(f"and ipcontroller: {what}", {})

    def _dispatch(self, number: int, payload: bytes) -> None:
        self._calling = [self._client[each].apply_async(call, number, payload) for each in range(self.size)]

    def _collect(self, number: int, stall_seconds: float) -> list[Any]:
        results = super()._collect(number, stall_seconds)
        for calling in self._calling:
            calling.get(timeout=_CONFIRM_SECONDS)
        self._calling = None
        with contextlib.suppress(Exception):
            self._client.purge_local_results("all")
        return results

    def _look(self) -> None:
        """Raises WorkerFailed for what ipyparallel alone can tell: an engine that could not even begin a call."""
        import ipyparallel

        for rank, calling in enumerate(self._calling or []):
            try:
                calling.get(timeout=0, return_when="FIRST_EXCEPTION")
            except TimeoutError:
                continue
            except ipyparallel.error.RemoteError as error:
                if error.ename == "RankFailed" and self.workers:
                    continue  # its own report is on the way
                text = "\n".join(error.render_traceback())
                raise WorkerFailed(rank, "start", f"raised {error.ename}: {error.evalue}", text) from None

    def _forget(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
        self._calling = None
        super()._forget()


def _security(meeting: Meeting, whose: str) -> str:
    """The controller's connection file for engines or clients."""
    return os.path.join(meeting.folder, "profile_default", "security", f"ipcontroller-{whose}.json")


class Engines(Mpiexec):
    """An ipyparallel engine per rank, all of them one MPI job."""

    def make_team(self, cores: list[list[int]], threads_per_worker: int, environment: str) -> Team:
        return EnginesTeam(cores, threads_per_worker, environment, self.names(len(cores)))
