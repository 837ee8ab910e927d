"""How many made-up examples tests of mutated files try: few every day, and as many as `make soak` asks for."""

from __future__ import annotations

import os


def asked_for(name: str, otherwise: int) -> int:
    """The number in this environment variable."""
    return int(os.environ.get(name, otherwise))


MUTATED_RECORDS = asked_for("LOCKSTEP_MUTATED_RECORDS", 30)
MUTATED_CHECKPOINTS = asked_for("LOCKSTEP_MUTATED_CHECKPOINTS", 40)
