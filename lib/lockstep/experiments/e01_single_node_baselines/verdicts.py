"""Verdicts on claims about one node."""

from __future__ import annotations

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.statistics import best_strategy, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, Claim, NotNow, Verdict, Verdicts, above_one, each
from lockstep.experiments.e01_single_node_baselines.grid import EXPERIMENT

RULES = Verdicts()


@RULES.add
def gpu_beats_cpu(claim: Claim, stored: Stored) -> Verdict:
    """More images/s on the GPU than in the best setting of the same machine's CPU."""

    def one(use_case: str) -> Verdict:
        here = {"experiment": EXPERIMENT, "use_case": use_case, "variant": "a"}
        rows = select(stored.records, here, status=None) if len(stored.records) else stored.records
        cuda, cpu = (rows[(rows["device"] == device)] for device in ("cuda", "cpu"))
        if cuda.empty or not (cpu["status"] == "ok").any():
            raise NotNow(NOT_YET, f"no records of {use_case} on a GPU and on the CPU")
        if not (cuda["status"] == "ok").any():
            raise NotNow(NEEDS_HARDWARE, "; ".join(dict.fromkeys(cuda["reason"].astype(str))))
        on_cpu = {**here, "device": "cpu"}
        best = {**on_cpu, "strategy": best_strategy(stored.records, on_cpu)}
        ratio = ratio_with_interval(stored.records, {**here, "device": "cuda"}, best, "images_per_second")
        return above_one(ratio, aa_noise(stored.records), "times the best CPU setting in images/s")

    return each(claim, one)
