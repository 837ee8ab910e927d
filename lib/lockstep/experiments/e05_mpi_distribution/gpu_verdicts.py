"""Verdicts on training over MPI on GPUs: measured, or else by the paper's own tables and a model of the exchange."""

from __future__ import annotations

from functools import partial

from lockstep.analysis.published_speedups import beside
from lockstep.analysis.rules import graded
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, PAPER, Claim, NotNow, Verdict, Verdicts, cell
from lockstep.experiments.e05_mpi_distribution.choosing import OVER_MPI, over_mpi
from lockstep.predict.gpu_answers import GPU_NODES, in_tables, measured_or, mpi_speedup, of_table

RULES = Verdicts()


@RULES.add
def mpi_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, MPI on the GPU, over sequential training on one GPU: the paper does not say what its base is."""

    def measured() -> Verdict:
        shared = {"experiment": "weak", "use_case": claim["use_case"], "device": "cuda"}
        base = cell(stored.records, **shared, strategy="sequential")
        return beside(claim, stored.records, over_mpi(stored.records, **shared), base, None)

    return measured_or(measured, partial(mpi_speedup, claim), GPU_NODES)


@RULES.add
def mpi_gpu_against_model(claim: Claim, stored: Stored) -> Verdict:
    """MPI over GPUs against model parallelism over the GPUs of one node: the paper's text against Tables 2 and 3."""

    def measured() -> Verdict:
        cell(stored.records, experiment="weak", use_case=claim["use_case"], device="cuda", **OVER_MPI)
        raise NotNow(NOT_YET, "there are records of MPI over GPUs, but none of model parallelism over GPUs beside them")

    def tables() -> Verdict:
        use_case = str(claim["use_case"])
        sides = of_table(use_case, "MPI", "table3"), of_table(use_case, "model", "table2")
        above, under = sides if use_case == "SimpleBig" else sides[::-1]
        why = "Table 2's speedup is beyond what the two GPUs of §3.3.1 can give over one"
        return graded(in_tables([(use_case, above, under)]), PAPER, why)

    return measured_or(measured, tables, GPU_NODES)
