"""The kernel of a run: our own Python, nothing on disk, and no process left when the run ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from lockstep.commands.runner.errors import Stopped
from lockstep.engine.launch.supervisor import remove_library_files
from lockstep.records.places import RUN_MARK as MARK

CLOSING_SECONDS = 3.0  # for the notebook to close its teams itself
_LAUNCH = """\
import contextlib, ctypes, runpy, signal
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: even a stopped kernel ends with its runner
runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
"""
TRACKER_SECONDS = 2.0  # for multiprocessing's tracker to unlink what the killed workers shared


class OwnPython(KernelSpecManager):  # type: ignore[misc]  # jupyter_client is not typed here
    """The kernel is this interpreter, whatever kernel specs the user has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-c", _LAUNCH, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class OwnKernelManager(AsyncKernelManager):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, kernel_spec_manager=OwnPython())

    async def _async_interrupt_kernel(self) -> None:
        """Not while it is shut down: all cells are through by then, and an idle kernel tells of it as an error."""
        if not self.shutting_down:
            await super()._async_interrupt_kernel()


class ProcessMark:
    """Marks a run's processes through their environment, so that also those are found whose parent has died."""

    def __init__(self) -> None:
        self.token, self._began = uuid.uuid4().hex, time.time()

    def environment(self) -> dict[str, str]:
        # Without the second, a kernel warns about frozen modules on every start.
        return {**os.environ, MARK: self.token, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

    def processes(self) -> list[psutil.Process]:
        """All living processes of the run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.token and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def stop(self) -> None:
        """End the run's processes: first an interrupt, so that the notebook can close its teams, then a kill."""
        processes = self.processes()
        for kernel in (process for process in processes if _parent(process) == os.getpid()):
            with contextlib.suppress(psutil.Error):
                kernel.send_signal(signal.SIGINT)
        self._wait_for_end_of(_is_worker, CLOSING_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill what is left of the run's processes; multiprocessing's resource tracker may clean up first."""
        for process in self.processes():
            if not _is_tracker(process):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._wait_for_end_of(lambda process: True, TRACKER_SECONDS)
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        remove_library_files(self._began)  # of MPI jobs whose supervisor had to be killed

    def _wait_for_end_of(self, waited_for: Callable[[psutil.Process], bool], seconds: float) -> None:
        """psutil's own wait would take a child's exit status away from the Popen that started it."""
        deadline = time.monotonic() + seconds
        while any(map(waited_for, self.processes())) and time.monotonic() < deadline:
            time.sleep(0.05)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Within it the first SIGINT or SIGTERM raises Stopped; later ones are ignored, for the clean-up is bounded."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; it keeps its own
        return

    def stop(number: int, frame: object) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return -1


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _is_worker(process: psutil.Process) -> bool:
    return _parent(process) != os.getpid() and not _is_tracker(process)
