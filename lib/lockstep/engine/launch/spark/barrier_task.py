"""What a task of Spark's barrier stage does: `begin`, under torchrun, runs the rank's own process (`rank_process`).

It is sent by name, so the driver, each executor's Python worker and each torchrun's program import this module. None of
them needs torch, whose import takes more than a second of a core: `lockstep.engine.groups` is not imported here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

RANK_VARIABLE = "LOCKSTEP_SPARK_RANK"
_MAIN = "from lockstep.engine.launch.spark.rank_process import main; main()"


def begin(settings: dict[str, Any]) -> str:
    """Run the rank to its end: what TorchDistributor calls. `settings`: address, key, environment, threads, path.

    Raises RuntimeError if the rank was killed or left.
    """
    from lockstep.engine.launch.environment import worker_environment

    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    environment = worker_environment(settings["environment"], settings["threads"])
    environment[RANK_VARIABLE] = json.dumps(settings)
    if chosen is None:  # The rank chooses the interface that reaches its launcher, not the loopback.
        del environment["GLOO_SOCKET_IFNAME"]
    if settings["path"]:
        environment["PYTHONPATH"] = settings["path"]
    process = subprocess.Popen([sys.executable, "-c", _MAIN], env=environment, stdin=subprocess.DEVNULL)
    if code := process.wait():
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        raise RuntimeError(f"lockstep: rank {os.environ['RANK']} {how}")
    return "done"
