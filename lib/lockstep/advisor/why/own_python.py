"""Which Python runs a script that a command line calls `python`.

On a machine where no environment is active `python` is the system's, which has no framework to train with: the script
would end at its first import. Then the Python that runs Lockstep does it; an active environment is never replaced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

PYTHONS = ("python", "python3")
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
_FRAMEWORKS = ("torch", "tensorflow", "jax")
_LOOK = "import sys; sys.path.pop(0)\nfrom importlib.util import find_spec\n"  # a folder `torch` here is no torch
_LOOK += f"raise SystemExit(not any(map(find_spec, {_FRAMEWORKS})))"
_LOOK_SECONDS = 20.0


def with_own_python(command: Sequence[str]) -> tuple[str, ...]:
    """The command; with this process's Python in place of a bare `python` or `python3` that is missing, or that has
    no framework, where no environment is active."""
    if not command or command[0] not in PYTHONS or any(os.environ.get(name) for name in _ACTIVE):
        return tuple(command)
    found = shutil.which(command[0])
    if found is not None and _has_a_framework(found):
        return tuple(command)
    return (sys.executable, *command[1:])


def _has_a_framework(python: str) -> bool:
    """Also where that can't be found out: its own error says more than ours could."""
    try:
        return subprocess.run([python, "-c", _LOOK], capture_output=True, timeout=_LOOK_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return True
