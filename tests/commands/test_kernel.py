"""The kernel that runs a notebook."""

from __future__ import annotations

import asyncio

import pytest
from jupyter_client.manager import KernelManager

from lockstep.commands.runner.kernel import OwnKernelManager


def test_an_idle_kernel_is_not_interrupted_as_it_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen at the end of a run in which nothing failed: "[IPKernelApp] ERROR | KeyboardInterrupt caught in kernel"."""
    interrupted = []

    async def interrupt(manager: KernelManager) -> None:
        interrupted.append(manager)

    for kind in OwnKernelManager.__mro__[1:]:
        if "_async_interrupt_kernel" in vars(kind):
            monkeypatch.setattr(kind, "_async_interrupt_kernel", interrupt)
    manager = OwnKernelManager()
    asyncio.run(manager._async_interrupt_kernel())
    assert interrupted == [manager], "a cell that runs is"
    manager.shutting_down = True
    asyncio.run(manager._async_interrupt_kernel())
    assert interrupted == [manager]
