"""Starts a script, or finds a running process, samples its tree of processes, and ends what it has started.

    lockstep why ── supervisor ── the script ── its processes       the supervisor ends all of them when we have gone

The script's output goes to our standard error, so that our own holds the findings alone. A process that was running
before is only looked at.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from lockstep.advisor.why.sampling import TreeSampler
from lockstep.advisor.why.script import ScriptSeen
from lockstep.engine.cgroups import cpu_limit
from lockstep.engine.launch.supervisor import Supervisor
from lockstep.measure.contention import Contention

SECONDS = 30.0
LEAST_LOOKS = 5
"""Fewer say nothing about shares."""
GENTLE_SECONDS = 3.0
"""For the script to end by itself after SIGTERM."""


class ScriptError(ValueError):
    """A script that can't be started or sampled; the message says why, and what to do."""


def observe_script(command: Sequence[str], seconds: float = SECONDS) -> ScriptSeen:
    """Start `command`, sample it for `seconds` of training or until it ends, and end it with all that it has started.

    Raises ScriptError for a script that failed, or ended before much could be seen.
    """
    # Through a shell that becomes the script: its output is to go where our messages go.
    words = ["/bin/sh", "-c", 'exec "$0" "$@" 1>&2', *command]
    supervisor = Supervisor({"script": words}, os.environ, [], inherit_output=True)
    try:
        with Contention() as contention:
            before, sampler = _network_bytes("self"), TreeSampler(supervisor.process.pid, below=True)
            sampler.sample(seconds, supervisor.ended)
            received = max(0, _network_bytes("self") - before)
        ended = supervisor.ended()
        if ended and supervisor.process.returncode:
            raise ScriptError(_failure(command, supervisor.process.returncode, sampler.seconds))
        return _seen(tuple(command), sampler, received, contention, ended)
    finally:
        _end(supervisor)


def observe_process(pid: int, seconds: float = SECONDS) -> ScriptSeen:
    """Sample a running process and those below it, which go on as before.

    Raises ScriptError for one that does not exist, is not ours to look at, or ended before much could be seen.
    """
    try:
        process = psutil.Process(pid)
        command = tuple(process.cmdline())
        os.listdir(f"/proc/{pid}/fd")  # only its owner may, as with the rest that is read here
    except (psutil.Error, OSError) as error:
        raise ScriptError(f"--pid {pid} can't be looked at: {error}; give a process of your own that runs") from error
    with Contention([pid]) as contention:
        before, sampler = _network_bytes(str(pid)), TreeSampler(pid)
        sampler.sample(seconds, lambda: not process.is_running())
        received = max(0, _network_bytes(str(pid)) - before)
    return _seen(command, sampler, received, contention, not process.is_running())


def _seen(
    command: tuple[str, ...], sampler: TreeSampler, received: int, contention: Contention, ended: bool
) -> ScriptSeen:  # fmt: skip
    processes, passed = sampler.processes(), max(sampler.seconds, 1e-9)
    if sampler.looks < LEAST_LOOKS or not processes:
        raise ScriptError(
            f"{' '.join(command)!r} ended after {passed:.1f} s and {sampler.looks} looks: too soon to see anything; "
            "let it train for some seconds"
        )
    cores, limit = len(sampler.cores()) or 1, cpu_limit()
    usable = max(1, min(cores, round(limit))) if limit else cores
    return ScriptSeen(
        command, passed, sampler.looks, usable, tuple(processes), sampler.start_seconds, received / passed,
        contention.others_share, ended,
    )  # fmt: skip


def _failure(command: Sequence[str], code: int, seconds: float) -> str:
    how = f"with exit code {code}"
    if code == 127:
        how += ", which a shell gives for a command that does not exist"
    elif code > 128:
        with contextlib.suppress(ValueError):
            how = f"by {signal.Signals(code - 128).name}"
    return f"{' '.join(command)!r} ended {how} after {seconds:.1f} s; what it wrote is above: run it by itself first"


def _end(supervisor: Supervisor) -> None:
    """SIGTERM to the script, so that it can clean up; then the supervisor ends whatever is left of it."""
    if not supervisor.ended():
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(supervisor.process.pid).children():
                child.terminate()
        end = time.monotonic() + GENTLE_SECONDS
        while not supervisor.ended() and time.monotonic() < end:
            time.sleep(0.05)
    supervisor.stop()
    supervisor.output.close()


def _network_bytes(process: str) -> int:
    """Received by all interfaces of that process's network namespace, by any program; 0 where it can't be read."""
    received = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc", process, "net", "dev").read_text().splitlines()[2:]:
            received += int(line.partition(":")[2].split()[0])
    return received
