"""Verdicts on data parallelism over GPUs, on a GPU's memory, and on what Figure 3 shows of one.

GPUs that measured something decide. Without any, the paper's own tables, counted memory and a model of a step on the
GPUs of its years speak, each with its grade (`lockstep.predict.gpu_answers`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.gpu_traces import mean_cpu_use, mean_threads
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.rules import above_one, with_seconds
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
    settle,
    table1,
    use_cases,
)
from lockstep.experiments.e02_threads_vs_processes.trace_verdicts import MEMORY, more_of
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
    without_gpus,
)

RULES = Verdicts()

A_TRACE = f"{ONE_GPU} and a minute's trace of its host"
_GPUS, _ON_CPU = "GPU single-process", ("CPU single-process", "CPU multi-process")


@RULES.add
def gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 1, GPU single-process: one replica per GPU; else what two GPUs could give, by the model."""
    measured = partial(published_speedup, claim, stored.on_gpus.records, None, "cuda")
    return measured_or(measured, partial(data_parallel_speedup, claim), TWO_GPUS)


def _on_one_gpu(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    """Figure 3 is of a host while its GPU trains."""
    return dict(table1(records, use_case=use_case, device="cuda", **BASELINE))


@RULES.add
def gpu_threads(claim: Claim, stored: Stored) -> Verdict:
    return only_measured(partial(mean_threads, claim, stored, _on_one_gpu), A_TRACE)


@RULES.add
def gpu_cpu_use(claim: Claim, stored: Stored) -> Verdict:
    return only_measured(partial(mean_cpu_use, claim, stored, _on_one_gpu), A_TRACE)


@RULES.add
def gpu_less_ram(claim: Claim, stored: Stored) -> Verdict:
    """Peak PSS of the CPU's cases, SimpleBig's processes excepted, above that of training on the GPU beside them."""
    host, records = stored.on_gpus, stored.on_gpus.records

    def less(use_case: str, strategy: str) -> Verdict:
        on_gpu = _on_one_gpu(records, use_case)
        on_cpu = table1(records, use_case=use_case, device="cpu", strategy=strategy)
        ratio = ratio_with_interval(records, on_cpu, on_gpu, MEMORY)
        found = above_one(ratio, aa_noise(records, MEMORY), f"times the GPU's peak PSS, {host.gpus}".rstrip(", "))
        return with_seconds(found, records, (on_cpu, on_gpu))

    def one(use_case: str) -> Verdict:
        cases = ("threads",) if use_case == "SimpleBig" else ("threads", "processes")
        return join([(strategy, settle(partial(less, use_case, strategy))) for strategy in cases])

    return only_measured(partial(each, claim, one), ONE_GPU)


@RULES.add
def gpu_steadier(claim: Claim, stored: Stored) -> Verdict:
    """Roughness of the CPU use in the traces, with threads and with processes minus while the GPU trains."""
    text = "(relative change of CPU use between samples, {} minus the GPU's)"

    def one(use_case: str) -> Verdict:
        _on_one_gpu(stored.on_gpus.records, use_case)  # raises with the reason of skipped rows
        own, still = {**claim, "use_case": use_case}, "both are steady"
        return join([
            # On the CPU a sequential cell is not traced.
            (name, more_of(own, stored.on_gpus, "cpu_roughness", text.format(name), still, (name, "sequential")))
            for name in ("threads", "processes")
        ])  # fmt: skip

    return only_measured(partial(each, claim, one), A_TRACE)


@RULES.add
def gpu_processes_overflow(claim: Claim, stored: Stored) -> Verdict:
    """How many processes a GPU's memory holds: counted, for GPUs of several sizes and batches."""
    return without_gpus(partial(processes_overflow, claim), ONE_GPU)


@RULES.add
def gpu_gains_less(claim: Claim, stored: Stored) -> Verdict:
    """Table 1's speedups over GPUs lie below those of both CPU modes: the paper's text against its table."""

    def tables() -> Verdict:
        return in_tables(
            (name, of_table(name, row, "table1", "cpu"), of_table(name, _GPUS, "table1"))
            for name in use_cases(claim)
            for row in _ON_CPU
        )

    return without_gpus(tables, TWO_GPUS)


@RULES.add
def gpu_worst_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """On GPUs SimpleBig gains least: by Table 1, and by the model, which knows nothing of the amount of data."""

    def measured() -> Verdict:
        parts, records = [], stored.on_gpus.records
        for name in ("SimpleBig", "ComplexSmall"):
            wanted = {"use_case": name, "device": "cuda"}
            ours, base = table1(records, **wanted), table1(records, **wanted, **BASELINE)
            rows = select(records, ours)
            others = sorted(set(rows["strategy"]) - {"sequential"})
            if not others:
                raise NotNow(NOT_YET, "there are GPU records, but none of several GPUs")
            above, under = {**ours, "strategy": others}, {**base, "workers": 1}
            parts.append(ratio_with_interval(records, above, under, "images_per_second"))
        text = "(SimpleBig's speedup over ComplexSmall's, on GPUs)"
        return opposite(above_one(parts[0].over(parts[1]), 0.0, text))

    def otherwise() -> Verdict:
        above, under = (of_table(name, _GPUS, "table1") for name in ("ComplexSmall", "SimpleBig"))
        table = in_tables([("ComplexSmall to SimpleBig", above, under)])
        return join([("Table 1", table), ("model", simple_big_gains_least())])

    return measured_or(measured, otherwise, TWO_GPUS)
