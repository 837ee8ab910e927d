"""The supervisor of a job: it runs the commands of a launcher, and sees to it that nothing of them stays behind.

    launcher --- supervisor --- mpiexec --- proxy --- ranks      a process that loses its parent becomes a child
       |  pid        |--------- ipcontroller ...                 of the supervisor (Linux: child subreaper)

`Supervisor` is the launcher's side. `main` is the program: it ends everything below it, stopped processes too, and
removes the files they left, when
- the launcher has gone, even by kill -9 (the kernel says so through a pidfd),
- it receives SIGTERM, or
- a command ends: the exit code of that command is then its own (128 + n for signal n).

The program runs without site-packages, so that it starts quickly and depends on nothing: the top of this file imports
the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_NO_FILE = {"HWLOC_XMLFILE": ""}  # MPICH's Hydra makes one in /tmp, which stays if it is killed, unless told of another
_LIBRARY_FILES = ("mpich_shm_", "ucx_shm_", "sm_segment.", "vader_segment.")  # that MPI libraries make in /dev/shm
_PROXIES = ("hydra_", "mpiexec", "prte", "orted")
_GENTLE_SECONDS, _KILL_SECONDS = 1.0, 5.0
_POLL_SECONDS = 1.0  # only where the kernel has no pidfd
_STOP_SECONDS = 10.0  # for the supervisor to end everything


class Supervisor:
    """The supervisor of a job, held by the launcher: the job ends with this process, and nothing of it stays."""

    def __init__(
        self,
        commands: Mapping[str, list[str]],
        environment: Mapping[str, str],
        remove: list[str],
        inherit_output: bool = False,  # what the commands write goes where this process's own output goes
    ) -> None:
        import tempfile

        settings = {"parent": os.getpid(), "commands": dict(commands), "remove": remove, "quiet": inherit_output}
        self._folders, self._began = remove, time.time()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the team
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, json.dumps(settings)],
            env=_NO_FILE | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=None if inherit_output else self.output,
            stderr=None if inherit_output else self.output,
            start_new_session=True,  # Ctrl-C is for the launcher
        )

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether the job has ended, after waiting for it for up to `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def cause_of_end(self) -> str:
        """Which program ended by itself, and with it the job, in words; empty if no program did."""
        import re

        from lockstep.engine.launch.failures import output_tail

        if (self.process.poll() or 0) < 0:
            return f"its supervisor was killed by {signal.Signals(-self.process.returncode).name}"
        found = re.search(r"^supervisor: (\w+) ended with (-?\d+)$", output_tail(self.output), re.MULTILINE)
        if found is None or (found[1] == "mpiexec" and int(found[2]) >= 0):
            return ""  # mpiexec ends with a code of its own when a rank has failed
        code = int(found[2])
        return f"{found[1]} was killed by {signal.Signals(-code).name}" if code < 0 else f"{found[1]} left with {code}"

    def stop(self) -> None:
        """End the job now."""
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)  # it may be stopped
        if not self.ended(_STOP_SECONDS):
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:  # It was killed: what it had started is found by the folder of the job.
            self._kill_by_folder()
            remove_library_files(self._began)

    def _kill_by_folder(self) -> None:
        import psutil

        killed = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(folder in part for part in process.cmdline() for folder in self._folders):
                    process.kill()
                    killed.append(process)
        psutil.wait_procs(killed, _KILL_SECONDS)


def main() -> None:
    """`supervisor.py {"parent": pid, "commands": {name: [...]}, "remove": [folder], "quiet": false}`."""
    settings = json.loads(sys.argv[1])
    began = time.time()
    code = 1
    commands: dict[str, subprocess.Popen[bytes]] = {}
    try:
        code = _supervise(settings["parent"], settings["commands"], settings["quiet"], commands)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"can't start: {error}", file=sys.stderr, flush=True)
        code = 127
    finally:
        _end_all([command.pid for command in commands.values() if command.poll() is None])
        remove_library_files(began)
        for folder in settings["remove"]:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def _supervise(
    parent: int, wanted: Mapping[str, list[str]], quiet: bool, commands: dict[str, subprocess.Popen[bytes]]
) -> int:
    """Start the `wanted` commands, which are added to `commands`, and wait for a reason to end; its exit code."""
    wakeup, ending = _install_signal_handlers()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGCONT)  # a stopped supervisor goes on when its launcher ends
    launcher = _open(parent)
    for name, words in wanted.items():
        commands[name] = subprocess.Popen(words, preexec_fn=_die_with_supervisor)
    while not ending and not _gone(parent, launcher):
        select.select([wakeup, *([launcher] if launcher is not None else [])], [], [], _timeout(launcher))
        _drain(wakeup)
        _reap_orphans({command.pid for command in commands.values()})
        for name, command in commands.items():
            if (status := command.poll()) is not None:
                ending.append(status if status >= 0 else 128 - status)
                if not quiet:
                    print(f"supervisor: {name} ended with {status}", flush=True)
    return ending[0] if ending else 1


def _install_signal_handlers() -> tuple[int, list[int]]:
    """A descriptor that becomes readable with every signal, and a list that holds an exit code after SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    ending: list[int] = []
    wakeup, write_end = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGTERM, lambda *_: ending.append(143))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakeup, ending


def _drain(wakeup: int) -> None:
    """Empty the pipe of signals: while it holds one, `select` would return at once and a core would be busy."""
    with contextlib.suppress(BlockingIOError):
        while os.read(wakeup, 4096):
            pass


def _reap_orphans(commands: set[int]) -> None:
    """Reap what has ended below this program, except its `commands`, whose exit codes `Popen.poll` is to find.

    A command that has ended stops the loop: it ends the job, and with it everything else.
    """
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in commands:
            os.waitpid(ended.si_pid, os.WNOHANG)


def _die_with_supervisor() -> None:
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _open(pid: int) -> int | None:
    """A descriptor that becomes readable when process `pid` ends."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


def _gone(pid: int, handle: int | None) -> bool:
    if handle is None:
        return os.getppid() != pid
    return bool(select.select([handle], [], [], 0)[0])


def _timeout(handle: int | None) -> float | None:
    return _POLL_SECONDS if handle is None else None


def _end_all(commands: list[int]) -> None:
    """Kill all descendants until none is left; those that lost their parent have become this program's children.

    The leaves come first: what started them then ends by itself.
    """
    _kill(_leaves())
    for pid in commands:
        _send(pid, signal.SIGTERM)
    end = time.monotonic() + _GENTLE_SECONDS
    while _descendants() and time.monotonic() < end:
        time.sleep(0.01)
        _reap()
    end = time.monotonic() + _KILL_SECONDS
    while (pids := set(_descendants())) and time.monotonic() < end:
        _kill(pids)
        _reap()
        time.sleep(0.01)


def _kill(pids: set[int]) -> None:
    for pid in pids:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _descendants() -> dict[int, int]:
    """Process id: parent, of all processes below this program; zombies only if this program is to reap them."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
                if state != "Z" or int(parent) == os.getpid():
                    parents[int(name)] = int(parent)
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: parents[pid] for pid in found - {os.getpid()}}


def _leaves() -> set[int]:
    """Descendants without children, except proxies of mpiexec: these clean up and end once their ranks have ended."""
    below = _descendants()
    return {pid for pid in set(below) - set(below.values()) if not _name(pid).startswith(_PROXIES)}


def _name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as comm:
        return comm.read()
    return ""


def remove_library_files(began: float) -> None:
    """Remove this user's files that MPI libraries made since `began` and that no living process uses."""
    own = _own_files("/dev/shm", _LIBRARY_FILES, began)
    for name in own - _names_in_use() if own else set():
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/{name}")


def _own_files(folder: str, starts: tuple[str, ...], began: float) -> set[str]:
    """Files of this user in `folder`, made since `began`, whose names begin with one of `starts`."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.startswith(starts):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.getuid() and status.st_ctime >= began - 1:
                    found.add(entry.name)
    return found


def _names_in_use() -> set[str]:
    """Names in /dev/shm that some process maps or has open."""
    used: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps") as maps:
                used.update(line.split("/dev/shm/", 1)[1].split()[0] for line in maps if "/dev/shm/" in line)
            for handle in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{handle}")
                if target.startswith("/dev/shm/"):
                    used.add(target[len("/dev/shm/") :])
        except OSError:
            continue
    return used


if __name__ == "__main__":
    main()
