"""Verdicts on data parallelism over GPUs, on a GPU's memory, and on what Figure 3 shows of one.

GPUs that measured something decide. Without any, the paper's own tables, counted memory and a model of a step on the
GPUs of its years speak, each with its grade (`lockstep.predict.gpu_answers`).
"""

from __future__ import annotations

from functools import partial

from lockstep.analysis.rules import above_one
from lockstep.analysis.statistics import BASELINE, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    NOT_YET,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    each,
    join,
    opposite,
    table1,
    use_cases,
)
from lockstep.experiments.e02_threads_vs_processes.verdicts import published_speedup
from lockstep.predict.gpu_answers import (
    ONE_GPU,
    TWO_GPUS,
    data_parallel_speedup,
    in_tables,
    measured_or,
    of_table,
    only_measured,
    processes_overflow,
    simple_big_gains_least,
)

RULES = Verdicts()

_GPUS, _ON_CPU = "GPU single-process", ("CPU single-process", "CPU multi-process")


@RULES.add
def gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, GPU single-process: one replica per GPU; else what two GPUs could give, by the model."""
    return measured_or(
        partial(published_speedup, claim, stored.records, None, "cuda"), partial(data_parallel_speedup, claim), TWO_GPUS
    )


@RULES.add
def needs_gpu(claim: Claim, stored: Stored) -> Verdict:
    """What Figure 3 shows of a GPU's host: traces on a GPU machine alone can tell."""

    def traced() -> Verdict:
        for use_case in use_cases(claim):
            table1(stored.records, use_case=use_case, device="cuda")  # raises with the skipped rows' own reason
        return Verdict(NOT_YET, "", "there are GPU records, but no traces of GPU training to judge this by")

    return only_measured(traced, f"{ONE_GPU} and a minute's trace of its host")


@RULES.add
def gpu_processes_overflow(claim: Claim, stored: Stored) -> Verdict:
    """How many processes a GPU's memory holds: counted, for GPUs of several sizes and batches."""
    return measured_or(partial(_nothing_measured, claim, stored), partial(processes_overflow, claim), ONE_GPU)


@RULES.add
def gpu_gains_less(claim: Claim, stored: Stored) -> Verdict:
    """Table 1's speedups over GPUs lie below those of both CPU modes: the paper's text against its table."""

    def tables() -> Verdict:
        return in_tables(
            (name, of_table(name, row, "table1", "cpu"), of_table(name, _GPUS, "table1"))
            for name in use_cases(claim)
            for row in _ON_CPU
        )

    return measured_or(partial(_nothing_measured, claim, stored), tables, TWO_GPUS)


@RULES.add
def gpu_worst_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """On GPUs SimpleBig gains least: by Table 1, and by the model, which knows nothing of the amount of data."""

    def measured() -> Verdict:
        parts = []
        for name in ("SimpleBig", "ComplexSmall"):
            wanted = {"use_case": name, "device": "cuda"}
            ours, base = table1(stored.records, **wanted), table1(stored.records, **wanted, **BASELINE)
            rows = select(stored.records, ours)
            others = sorted(set(rows["strategy"]) - {"sequential"})
            if not others:
                raise NotNow(NOT_YET, "there are GPU records, but none of several GPUs")
            above, under = {**ours, "strategy": others}, {**base, "workers": 1}
            parts.append(ratio_with_interval(stored.records, above, under, "images_per_second"))
        text = "(SimpleBig's speedup over ComplexSmall's, on GPUs)"
        return opposite(above_one(parts[0].over(parts[1]), 0.0, text))

    def otherwise() -> Verdict:
        above, under = (of_table(name, _GPUS, "table1") for name in ("ComplexSmall", "SimpleBig"))
        table = in_tables([("ComplexSmall to SimpleBig", above, under)])
        return join([("Table 1", table), ("model", simple_big_gains_least())])

    return measured_or(measured, otherwise, TWO_GPUS)


def _nothing_measured(claim: Claim, stored: Stored) -> Verdict:
    """For what no cell of this notebook compares, GPUs or not."""

    def one(use_case: str) -> Verdict:
        table1(stored.records, use_case=use_case, device="cuda")
        raise NotNow(NOT_YET, "there are GPU records, but none that answer this")

    return each(claim, one)
