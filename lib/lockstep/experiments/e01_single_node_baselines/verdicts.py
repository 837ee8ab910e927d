"""Verdicts on claims about one node."""

from __future__ import annotations

from functools import partial

import pandas as pd

from lockstep.analysis.rules import has_more
from lockstep.analysis.statistics import Conditions, best_strategy, interval_of, per_round, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, Claim, NotNow, Verdict, Verdicts, cores_given, each
from lockstep.experiments.e01_single_node_baselines.grid import EXPERIMENT
from lockstep.predict.gpu_answers import ONE_GPU, gpu_over_cpu, measured_or

RULES = Verdicts()


@RULES.add
def gpu_beats_cpu(claim: Claim, stored: Stored) -> Verdict:
    """More images/s on a GPU than in the best setting of the CPU: of the same machine, or else by the model of a GPU
    of the paper's years beside this machine's CPU."""

    def one(use_case: str) -> Verdict:
        modelled = partial(_modelled, stored.records, use_case)
        return measured_or(partial(_measured, stored.records, use_case), modelled, ONE_GPU)

    return each(claim, one)


def _best_on_cpu(records: pd.DataFrame, use_case: str) -> Conditions:
    on_cpu = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a", "device": "cpu"}
    best = best_strategy(records, on_cpu) if len(records) else None
    if best is None:
        raise NotNow(NOT_YET, f"no records of {use_case} on the CPU")
    return {**on_cpu, "strategy": best}


def _measured(records: pd.DataFrame, use_case: str) -> Verdict:
    best = _best_on_cpu(records, use_case)
    on_gpu = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a", "device": "cuda"}
    rows = select(records, on_gpu, status=None)
    if rows.empty:
        raise NotNow(NOT_YET, f"no records of {use_case} on a GPU")
    if not (rows["status"] == "ok").any():
        raise NotNow(NEEDS_HARDWARE, "; ".join(dict.fromkeys(rows["reason"].astype(str))))
    return has_more(records, on_gpu, best, "times the best CPU setting in images/s")


def _modelled(records: pd.DataFrame, use_case: str) -> Verdict:
    best = _best_on_cpu(records, use_case)
    rate = interval_of(per_round(records, best, "images_per_second"))
    return gpu_over_cpu(use_case, rate, cores_given(select(records, best)))
