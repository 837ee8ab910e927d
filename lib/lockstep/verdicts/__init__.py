"""From records to verdicts: one function per kind of claim, named in `data/published/claims.csv`."""

from lockstep.verdicts import baselines as _baselines
from lockstep.verdicts import cited as _cited
from lockstep.verdicts import distribution as _distribution
from lockstep.verdicts import gpu_hosts as _gpu_hosts
from lockstep.verdicts import learning as _learning
from lockstep.verdicts import learning_time as _learning_time
from lockstep.verdicts import model_parallel as _model_parallel
from lockstep.verdicts import network as _network
from lockstep.verdicts import resources as _resources
from lockstep.verdicts import scaling as _scaling
from lockstep.verdicts import spark as _spark
from lockstep.verdicts import speed as _speed
from lockstep.verdicts.rules import (
    NOT_MEASURABLE,
    NOT_REPRODUCED,
    NOT_YET,
    REPRODUCED,
    TOLERANCE,
    VERDICTS,
    WORDS,
    Verdict,
    judge,
)

__all__ = [
    "NOT_MEASURABLE",
    "NOT_REPRODUCED",
    "NOT_YET",
    "REPRODUCED",
    "TOLERANCE",
    "VERDICTS",
    "WORDS",
    "Verdict",
    "judge",
]

# Imported for what they register.
_: tuple[object, ...] = (_baselines, _cited, _distribution, _gpu_hosts, _learning, _model_parallel, _network)
_ += (_learning_time, _resources, _scaling, _spark, _speed)
