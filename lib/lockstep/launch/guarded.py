"""The launcher's side of a guarded job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from lockstep.launch import guard, seat
from lockstep.launch.watch import tail

_END_SECONDS = 10.0


class Guard:
    """The guard of a job (see `guard`): it goes with this process, and nothing stays when it has ended."""

    def __init__(
        self,
        commands: Mapping[str, list[str]],
        environment: Mapping[str, str],
        remove: list[str],
        inherit: bool = False,  # what the commands write goes where this process's goes
    ) -> None:
        told = {"parent": os.getpid(), "commands": dict(commands), "remove": remove, "quiet": inherit}
        self._folders = remove
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the team
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), json.dumps(told)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=None if inherit else self.output,
            stderr=None if inherit else self.output,
            start_new_session=True,  # Ctrl-C is for the launcher
        )

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether the job has ended, after waiting for it for up to `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def culprit(self) -> str:
        """What became of the program that ended by itself and with it the job, in words; empty if none was killed."""
        if (self.process.poll() or 0) < 0:
            return f"its guard was killed by {signal.Signals(-self.process.returncode).name}"
        found = re.search(r"^guard: (\w+) ended with (-?\d+)$", tail(self.output), re.MULTILINE)
        if found is None or (found[1] == "mpiexec" and int(found[2]) >= 0):
            return ""  # mpiexec ends with a code of its own when a rank has failed
        code = int(found[2])
        return f"{found[1]} was killed by {signal.Signals(-code).name}" if code < 0 else f"{found[1]} left with {code}"

    def stop(self) -> None:
        """End the job now."""
        self.process.terminate()
        if not self.ended(_END_SECONDS):
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:  # somebody killed it: what it started is told by the job's own folder
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if any(folder in part for part in process.cmdline() for folder in self._folders):
                        process.kill()


def seated(socket: str) -> list[str]:
    """What goes before a rank's program: its seat (see `seat`), which tells the launcher that listens at `socket`."""
    return [sys.executable, "-I", "-S", str(Path(seat.__file__)), socket]
