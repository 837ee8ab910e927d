"""Verdicts on claims about one node."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis import aa_or_none, best_strategy, ratio_with_interval, select
from lockstep.ladder import AA_RUNG, EXPERIMENT
from lockstep.verdicts.rules import NOT_MEASURABLE, NOT_YET, Claim, NotNow, Verdict, above_one, each, register


@register
def gpu_beats_cpu(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """More images/s on the GPU than in the best setting of the same machine's CPU."""

    def one(use_case: str) -> Verdict:
        here = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a"}
        rows = select(records, here, status=None) if len(records) else records
        cuda, cpu = (rows[(rows["device"] == device)] for device in ("cuda", "cpu"))
        if cuda.empty or not (cpu["status"] == "ok").any():
            raise NotNow(NOT_YET, f"no records of {use_case} on a GPU and on the CPU")
        if not (cuda["status"] == "ok").any():
            raise NotNow(NOT_MEASURABLE, "; ".join(dict.fromkeys(cuda["reason"].astype(str))))
        on_cpu = {**here, "device": "cpu"}
        best = {**on_cpu, "strategy": best_strategy(records, on_cpu)}
        ratio = ratio_with_interval(records, {**here, "device": "cuda"}, best, "images_per_second")
        aa = aa_or_none(records, {"experiment": EXPERIMENT, "use_case": use_case, "strategy": AA_RUNG})
        return above_one(ratio, aa, "times the best CPU setting in images/s")

    return each(claim, one)
