"""This machine and its software, as a calibration names them: no host name, no path."""

from __future__ import annotations

import platform

import torch

from lockstep.advisor.calibration import CalibratedMachine
from lockstep.measure import cgroups
from lockstep.measure.environment import machine


def this_machine(device: str = "cpu") -> CalibratedMachine:
    """The machine that calls; of a GPU its name and its memory."""
    found, name = machine(), "cpu"
    limit = cgroups.memory_left()
    memory = int(found["memory_bytes"]) if limit is None else min(int(found["memory_bytes"]), limit)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name, memory = properties.name, int(properties.total_memory)
    return CalibratedMachine(
        processor=str(found["cpu"]),
        device=name,
        cores=int(found["cores"]),
        memory_bytes=memory,
        system=f"{found['os']} {found['kernel']} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
    )
