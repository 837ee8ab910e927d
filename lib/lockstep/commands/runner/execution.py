"""Run a plan: papermill injects the parameters and runs the cells, on a kernel that this module starts and ends."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError

from lockstep.commands.runner.errors import RunError, RunFailed, Stopped, is_own_error
from lockstep.commands.runner.kernel import OwnKernelManager, ProcessMark, stop_on_signals
from lockstep.commands.runner.places import written
from lockstep.commands.runner.plans import RunPlan
from lockstep.commands.runner.progress import CellProgress
from lockstep.engine.files import ScratchFolder, write_atomically

START_SECONDS = 120  # for a kernel to answer, on a busy machine
LOG = logging.getLogger("lockstep.commands.runner")
LOG.addHandler(logging.NullHandler())  # what nbclient reports, RunFailed says
# Papermill reads the parameters, too, line by line, and warns of every list with a "=" in a text; ours parses Python.
logging.getLogger("papermill.translators").setLevel(logging.ERROR)
_GO_ON = "rounds written so far are kept, the same command goes on from there"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class _Session:
    """What the engine needs to know of a run, and the notebook as far as it got."""

    def __init__(
        self, root: Path, timeout_seconds: int | None, progress: CellProgress, environment: dict[str, str]
    ) -> None:
        self.root = root
        self.environment = environment
        self.timeout_seconds = timeout_seconds
        self.progress = progress
        self.mark = ProcessMark()
        self.notebook: Any = None
        self.deadline = time.monotonic() + timeout_seconds if timeout_seconds else None

    def seconds_left(self, cell: object) -> int | None:
        return None if self.deadline is None else max(1, round(self.deadline - time.monotonic()))


class _Client(PapermillNotebookClient):  # type: ignore[misc]  # papermill is not typed
    """Papermill's client; whatever ends the cells, the run's processes end before it returns."""

    def __init__(self, manager: Any, session: _Session, **options: Any) -> None:
        super().__init__(manager, **options)
        self.session = session

    def execute(self, **options: Any) -> Any:
        with ScratchFolder("lockstep-run-") as scratch:  # what a library leaves there goes with the run
            self.create_kernel_manager().connection_file = str(scratch / "kernel.json")
            environment = self.session.mark.environment() | {"TMPDIR": str(scratch)} | self.session.environment
            try:
                return super().execute(cwd=str(self.session.root), env=environment, **options)
            finally:
                self.session.mark.kill()  # a kernel that was still starting, or a worker that outlived its kernel

    def papermill_execute_cells(self) -> None:
        loop = ensure_event_loop()
        loop.set_exception_handler(None)
        try:
            super().papermill_execute_cells()
        except BaseException as error:
            loop.set_exception_handler(lambda *_: None)  # its tasks would go on to tell of the kernel's end
            self.session.mark.stop()
            self._show_error(error)
            raise

    def execute_cell(self, cell: Any, index: int, *positional: Any, **options: Any) -> Any:
        self.session.progress.cell_started(index)
        return super().execute_cell(cell, index, *positional, **options)

    def _show_error(self, error: BaseException) -> None:
        """An error that the kernel could not report itself goes into the cell that was running."""
        running = [cell for cell in self.nb.cells if cell.cell_type == "code" and cell.metadata.papermill["start_time"]]
        if running:
            text = _describe(error, self.session.timeout_seconds)
            output = nbformat.v4.new_output("error", ename=type(error).__name__, evalue=text, traceback=[text])
            running[-1].outputs.append(output)


class _Engine(NBClientEngine):  # type: ignore[misc]
    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, session: _Session, **_: Any) -> Any:
        session.notebook = nb_man.nb
        client = _Client(
            nb_man, session, kernel_name=kernel_name, kernel_manager_class=OwnKernelManager,
            timeout_func=session.seconds_left, startup_timeout=START_SECONDS, stderr_file=session.progress,
            extra_arguments=["--log-level=40"],  # errors only; a warning would look like the notebook's own
            log=LOG,
        )  # fmt: skip
        return client.execute()


papermill_engines.register("lockstep", _Engine)


def execute(plan: RunPlan) -> None:
    """Run one notebook and write `plan.executed`, also when it fails or is stopped.

    Raises RunFailed if a cell fails, the time is up or the kernel dies; Stopped after SIGINT or SIGTERM, when no
    process of the run is left; RunError if another run holds the folder.
    """
    with _sole_run(plan.executed.parent), stop_on_signals():
        _execute(
            plan.notebook, plan.executed, plan.root, plan.parameters, plan.timeout_seconds, environment=plan.environment
        )


def refresh(notebook: Path, root: Path, timeout_seconds: int | None = None) -> None:
    """Re-execute a committed notebook in place, from stored results; a notebook that fails stays as it was.

    Times, paths and versions are left out, so that nothing changes in it unless its results or its text do.
    """
    with stop_on_signals():
        _execute(notebook, None, root, {}, timeout_seconds, replace=notebook)


def _execute(
    notebook: Path,
    executed: Path | None,
    root: Path,
    parameters: dict[str, Any],
    timeout_seconds: int | None,
    replace: Path | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    cells = len(nbformat.read(notebook, as_version=4).cells) + bool(parameters)
    where = f"\nthe executed notebook: {written(executed, root)}" if executed else ""
    with CellProgress(notebook.stem, cells) as progress:
        session = _Session(root, timeout_seconds, progress, environment or {})
        try:
            papermill.execute_notebook(
                notebook, None, parameters, engine_name="lockstep", kernel_name=KERNEL["name"], language="python",
                progress_bar=False, session=session,
            )  # fmt: skip
            progress.finished()
        except PapermillExecutionError as error:
            shown = error.evalue if is_own_error(error.ename, error.traceback) else "\n" + "\n".join(error.traceback)
            if error.ename == "KeyboardInterrupt":  # of the kernel alone: ours ends the run as Stopped
                shown = f"the kernel was interrupted by SIGINT; {_GO_ON}"
            raise RunFailed(f"{notebook.stem} failed in cell [{error.exec_count}]: {shown}{where}") from error
        except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
            raise RunFailed(f"{notebook.stem} failed: {_describe(error, timeout_seconds)}{where}") from error
        finally:
            if session.notebook is not None and executed is not None:
                write_atomically(executed, _text_of(session.notebook))
    if replace is not None:
        write_atomically(replace, _text_of(session.notebook))


def _describe(error: BaseException, timeout_seconds: int | None) -> str:
    if isinstance(error, CellTimeoutError):
        return f"the time-out of {timeout_seconds} s for the whole notebook is over; give more with --timeout"
    if isinstance(error, DeadKernelError):
        return "the kernel died (killed from outside, or the machine ran out of memory); rounds written so far are kept"
    if isinstance(error, Stopped):
        return f"stopped by {error}; {_GO_ON}"
    if "replying to kernel_info" in str(error):
        return f"the kernel was ended while it started (killed from outside, or no memory was left); {_GO_ON}"
    if "Kernel didn't respond" in str(error):
        return f"the kernel did not answer within {START_SECONDS} s; the machine is too busy: run it again later"
    return f"{type(error).__name__}: {error}"


def _text_of(notebook: Any) -> str:
    """The notebook as text, without times, paths and versions: they would change with every run."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        folded = {"jupyter": {"source_hidden": True}} if cell.cell_type == "code" else {}  # a click shows the code
        cell.metadata = nbformat.from_dict(({"tags": tags} if tags else {}) | folded)
    return str(nbformat.writes(notebook, version=4)).rstrip() + "\n"


@contextlib.contextmanager
def _sole_run(folder: Path) -> Iterator[None]:
    """One run per folder; the lock goes with the process, so that kill -9 leaves none behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(
                f"{folder} is in use by another run; wait for it or give another folder with --out"
            ) from error
        yield
