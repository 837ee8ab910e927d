"""A run that is stopped says so once: what its event loop has left is silent."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient

from lockstep.commands.runner import kernel
from lockstep.commands.runner.errors import RunFailed, Stopped
from lockstep.commands.runner.execution import _Client, refresh
from small_notebooks import small_repository


async def notice_the_end() -> None:
    """As nbclient's task that looks whether the kernel lives: nobody waits for it any more."""
    await asyncio.sleep(0.01)
    raise DeadKernelError("Kernel died")


def run_the_rest() -> None:
    """What nbclient does on its loop afterwards, to clean up; then tasks are collected."""
    ensure_event_loop().run_until_complete(asyncio.sleep(0.05))
    gc.collect()


@pytest.fixture
def client() -> _Client:
    made = _Client.__new__(_Client)
    made.session = SimpleNamespace(mark=SimpleNamespace(stop=lambda: None), timeout_seconds=None)
    made.nb = SimpleNamespace(cells=[])
    return made


def test_what_the_loop_has_left_is_silent(
    client: _Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: "Task exception was never retrieved ... DeadKernelError" after the clear message of SIGINT."""
    stopped = [True, False]

    def cells(_: Any) -> None:
        ensure_event_loop().create_task(notice_the_end())
        if stopped.pop(0):
            raise Stopped(2)

    monkeypatch.setattr(PapermillNotebookClient, "papermill_execute_cells", cells)
    with caplog.at_level(logging.ERROR, "asyncio"):
        with pytest.raises(Stopped):
            client.papermill_execute_cells()
        run_the_rest()
        assert caplog.text == ""
        client.papermill_execute_cells()  # of the next notebook, which nobody stops
        run_the_rest()
        assert "never retrieved" in caplog.text and "DeadKernelError" in caplog.text


@pytest.mark.slow
def test_a_kernel_that_is_killed_before_it_first_answers_is_told_of_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: "RuntimeError: Kernel died before replying to kernel_info"."""
    monkeypatch.setattr(kernel, "_LAUNCH", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    root = small_repository(tmp_path)
    with pytest.raises(RunFailed, match="07_small failed: the kernel was ended while it started"):
        refresh(root / "notebooks" / "07_small.ipynb", root)
