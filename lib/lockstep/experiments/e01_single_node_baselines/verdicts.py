"""Verdicts on claims about one node."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import Estimate, highest
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.rules import above_one, with_seconds
from lockstep.analysis.statistics import (
    Conditions,
    each_strategy,
    interval_of,
    per_round,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    NEEDS_HARDWARE,
    NOT_YET,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    cores_given,
    each,
    join,
    settle,
)
from lockstep.experiments.e01_single_node_baselines.grid import EXPERIMENT
from lockstep.predict.gpu_answers import ONE_GPU, gpu_over_cpu, measured_or

RULES = Verdicts()
_RATE = "images_per_second"


@RULES.add
def gpu_beats_cpu(claim: Claim, stored: Stored) -> Verdict:
    """More images/s on a GPU than in each setting of the CPU that stood beside it, or else, by the model of a GPU of
    the paper's years, than in this machine's best, whose choice the interval pays for."""

    def one(use_case: str) -> Verdict:
        modelled = partial(_modelled, stored.records, use_case)
        return measured_or(partial(_measured, stored.on_gpus, use_case), modelled, ONE_GPU)

    return each(claim, one)


def _on_cpu(records: pd.DataFrame, use_case: str) -> list[dict[str, Any]]:
    """Every setting of the CPU that ran. Raises NotNow where none did."""
    shared = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a", "device": "cpu"}
    found = each_strategy(records, shared) if len(records) else []
    if not found:
        raise NotNow(NOT_YET, f"no records of {use_case} on the CPU")
    return found


def _measured(stored: Stored, use_case: str) -> Verdict:
    records, settings = stored.records, _on_cpu(stored.records, use_case)
    on_gpu = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a", "device": "cuda"}
    if select(records, on_gpu).empty:
        raise NotNow(NEEDS_HARDWARE, f"no GPU trained {use_case}")
    over: dict[str, Estimate] = {}

    def beats(setting: Conditions) -> Verdict:
        over[str(setting["strategy"])] = ratio = ratio_with_interval(records, on_gpu, setting, _RATE)
        return with_seconds(above_one(ratio, aa_noise(records), "times its images/s"), records, [on_gpu, setting])

    parts = [(str(setting["strategy"]), settle(partial(beats, setting))) for setting in settings]
    found = join([each for each in parts if each[0] in over] or parts)  # those that stood beside it
    if not over:
        return found
    nearest, ratio = min(over.items(), key=lambda pair: pair[1].value)
    text = f"{ratio} times the images/s of `{nearest}`, the nearest of {len(over)} CPU settings"
    return replace(found, measured=f"{text}, {stored.gpus}".rstrip(", "), numbers=(("", ratio),))


def _modelled(records: pd.DataFrame, use_case: str) -> Verdict:
    settings = _on_cpu(records, use_case)
    rates = [interval_of(per_round(records, setting, _RATE)) for setting in settings]
    best = max(range(len(rates)), key=lambda place: rates[place].value)
    return gpu_over_cpu(use_case, highest(rates), cores_given(select(records, settings[best])))
