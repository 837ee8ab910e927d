"""This machine and its software, as a calibration names them: no host name, no path. Only a GPU needs torch."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import replace

import psutil

from lockstep.advisor.calibration import CalibratedMachine
from lockstep.engine import cgroups
from lockstep.engine.cores import usable_cores
from lockstep.measure.environment import cpu_model, leading_numbers


def this_machine(device: str = "cpu") -> CalibratedMachine:
    """The machine that calls; with device="cuda" the name and the memory of its first GPU."""
    total, limit = psutil.virtual_memory().total, cgroups.memory_left(unused=True)
    found = CalibratedMachine(
        processor=cpu_model(),
        device="cpu",
        cores=len(usable_cores()),
        memory_bytes=total if limit is None else min(total, limit),
        system=f"{platform.system()} {leading_numbers(platform.release())} {platform.machine()}",
        python=platform.python_version(),
        torch=_torch_version(),
    )
    if device == "cpu":
        return found
    import torch

    properties = torch.cuda.get_device_properties(0)
    return replace(found, device=properties.name, memory_bytes=int(properties.total_memory))


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"
