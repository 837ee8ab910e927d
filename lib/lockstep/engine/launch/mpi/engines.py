"""Teams whose ranks are ipyparallel engines of one MPI job: the MPI workers of a notebook.

    launcher --- supervisor --- ipcontroller
        |             |-------- mpiexec --- proxy --- engine 0 = rank 0, engine 1 = rank 1 ...
        |                                                 |
        +---- apply_async, through the controller --------+     calls
        +---- control: a socket per engine ---------------+     results, tracebacks, and that it still lives

The cluster's files are in a private folder (IPYTHONDIR), so that no other cluster of this machine is met by mistake.
The supervisor ends controller and engines together, also after kill -9 of the launcher or a start that fails half-way.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.launch.mpi.commands import command, private_network
from lockstep.engine.launch.mpi.engine_process import call, is_complete, join_launcher
from lockstep.engine.launch.mpi.team import MpiTeam
from lockstep.engine.launch.rank_parent import rank_parent_command
from lockstep.engine.launch.rendezvous import Rendezvous

_ENGINE = "from lockstep.engine.launch.mpi.engine_process import main; main()"
# An engine is registered with a heartbeat, by default every 3 s. No engine is given up for a late answer.
_HEARTBEAT = ["--HeartMonitor.period=500", "--HeartMonitor.max_heartmonitor_misses=240"]
_CONFIRM_SECONDS = 30.0  # for ipyparallel to confirm the end of calls that have ended


class EnginesTeam(MpiTeam):
    """`Team` on the engines of an ipyparallel cluster of its own."""

    _client: Any = None
    _pending: Any = None

    @property
    def client(self) -> Any:
        """The `ipyparallel.Client` of this cluster, for %%px and the like; None before the first call."""
        return self._client

    def _commands(self, rendezvous: Rendezvous) -> dict[str, list[str]]:
        common = [f"--ipython-dir={rendezvous.folder}", "--log-level=WARN"]
        controller = [sys.executable, "-m", "ipyparallel.controller", *common]
        # Sockets in the folder, which nobody else can open: no stranger's bytes reach controller or engines.
        controller += ["--transport=ipc", f"--ip={rendezvous.folder}/i", "--nodb", "--usethreads", *_HEARTBEAT]
        engine = [sys.executable, "-c", _ENGINE, *common, "--mpi", f"--file={_connection_file(rendezvous, 'engine')}"]
        engine += ["--IPEngine.enable_nanny=False"]
        words = command(self._mpi, self.size, [*rank_parent_command(rendezvous.exit_reports_path), *engine])
        return {"ipcontroller": controller, "mpiexec": [*private_network(self._mpi), *words]}

    def _environment_of_commands(self, rendezvous: Rendezvous) -> dict[str, str]:
        return super()._environment_of_commands(rendezvous) | {"IPYTHONDIR": rendezvous.folder}

    def _wait_until_ready(self, rendezvous: Rendezvous, deadline: float) -> None:
        self._client = self._connect(rendezvous, deadline)
        targets = list(range(self.size))
        if sorted(self._client.ids) != targets:
            raise self._start_failure(f"gave engines {sorted(self._client.ids)} instead of {targets}", {})
        # One call each, because each gets its own number; all of them are under way before the first is waited for.
        self._pending = [self._client[each].apply_async(join_launcher, rendezvous.path, each) for each in targets]
        super()._wait_until_ready(rendezvous, deadline)
        while not all(pending.ready() for pending in self._pending):
            self._still_starting(deadline, "the controller has not confirmed that all engines are ready")
            time.sleep(0.01)
        self._pending = None

    def _connect(self, rendezvous: Rendezvous, deadline: float) -> Any:
        """A client that sees all engines. Raises WorkerFailed."""
        import ipyparallel

        file = _connection_file(rendezvous, "client")
        while not (is_complete(file) and is_complete(_connection_file(rendezvous, "engine"))):
            self._still_starting(deadline, "the controller has written no connection file")
            time.sleep(0.05)
        _link_sockets(rendezvous)
        client = None
        while client is None:
            try:
                with warnings.catch_warnings(action="ignore"):
                    client = ipyparallel.Client(file, timeout=5.0)  # seconds, then it is asked again
            except TimeoutError:
                self._still_starting(deadline, "the controller has not answered")
        try:
            while len(client.ids) < self.size:
                self._still_starting(deadline, f"{len(client.ids)} of {self.size} engines have registered")
                time.sleep(0.05)
        except BaseException:
            client.close()
            raise
        return client

    def _still_starting(self, deadline: float, what: str) -> None:
        assert self._supervisor is not None
        self._check()
        if self._supervisor.ended() or time.monotonic() > deadline:
            raise self._start_failure(f"and ipcontroller: {what}", {})

    def _dispatch(self, number: int, payload: bytes) -> None:
        self._pending = [self._client[each].apply_async(call, number, payload) for each in range(self.size)]

    def _collect(self, number: int, stall_seconds: float) -> list[Any]:
        results = super()._collect(number, stall_seconds)
        try:
            for pending in self._pending:
                pending.get(timeout=_CONFIRM_SECONDS)
        except TimeoutError:  # the results are here; whoever calls next gets another team
            warnings.warn(f"ipcontroller has not confirmed within {_CONFIRM_SECONDS:.0f} s: it is ended", stacklevel=2)
            self.kill()
            return results
        self._pending = None
        with contextlib.suppress(Exception):
            self._client.purge_local_results("all")
        return results

    def _check(self) -> None:
        """Raises WorkerFailed, also for what ipyparallel alone knows: an engine that could not even begin a call."""
        import ipyparallel

        super()._check()

        for rank, pending in enumerate(self._pending or []):
            try:
                pending.get(timeout=0, return_when="FIRST_EXCEPTION")
            except TimeoutError:
                continue
            except ipyparallel.error.RemoteError as error:
                if error.ename == "RankFailed" and self.workers:
                    continue  # its own report will arrive
                text = "\n".join(error.render_traceback())
                raise WorkerFailed(rank, "start", f"raised {error.ename}: {error.evalue}", text) from None

    def close(self) -> None:
        self.kill()  # engines read nothing from their connections: they would not end by themselves

    def _release(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
        self._pending = None
        super()._release()


def _connection_file(rendezvous: Rendezvous, whose: str) -> str:
    """The controller's connection file for engines or clients."""
    return os.path.join(rendezvous.folder, "profile_default", "security", f"ipcontroller-{whose}.json")


def _link_sockets(rendezvous: Rendezvous) -> None:
    """Give the controller's sockets the names by which clients and engines call them.

    ipyparallel 9 listens at <folder>/i-NUMBER and connects to <folder>/i:NUMBER, which it tries until it can.
    """
    numbers: set[int] = set()
    for whose in ("client", "engine"):
        for value in json.loads(Path(_connection_file(rendezvous, whose)).read_text()).values():
            numbers.update(each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int))
    for number in numbers:
        os.symlink(f"i-{number}", os.path.join(rendezvous.folder, f"i:{number}"))
