"""Verdicts on data parallelism over GPUs, and on what Figure 3 shows of one."""

from __future__ import annotations

from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, Claim, NotNow, Verdict, Verdicts, each, table1, use_cases
from lockstep.experiments.e02_threads_vs_processes.verdicts import published_speedup

RULES = Verdicts()


@RULES.add
def gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, GPU single-process: one replica per GPU."""
    return published_speedup(claim, stored.records, None, "cuda")


@RULES.add
def needs_gpu(claim: Claim, stored: Stored) -> Verdict:
    """A claim about one GPU's memory, threads or host: traces on a GPU machine are to be had first."""
    for use_case in use_cases(claim):
        table1(stored.records, use_case=use_case, device="cuda")  # raises with the skipped rows' own reason
    return Verdict(NOT_YET, "", "there are GPU records, but no traces of GPU training to judge this by")


@RULES.add
def gpu_gains_less(claim: Claim, stored: Stored) -> Verdict:
    """The GPU's speedup over sequential training on the GPU is below that of processes on the CPU."""

    def one(use_case: str) -> Verdict:
        table1(stored.records, use_case=use_case, device="cuda")
        raise NotNow(NOT_YET, "there are GPU records, but several GPUs are needed for data parallelism over them")

    return each(claim, one)


@RULES.add
def gpu_worst_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """On GPUs SimpleBig gains least: needs data parallelism over GPUs."""
    return gpu_gains_less(claim, stored)
