"""Verdicts on training over MPI on GPUs."""

from __future__ import annotations

from lockstep.analysis.published_speedups import beside
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, Claim, NotNow, Verdict, Verdicts, cell
from lockstep.experiments.e05_mpi_distribution.choosing import OVER_MPI, fastest

RULES = Verdicts()


@RULES.add
def mpi_gpu_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, MPI on the GPU, over sequential training on one GPU: the paper does not say what its base is."""
    shared = {"experiment": "weak", "use_case": claim["use_case"], "device": "cuda"}
    ours, chosen = fastest(stored.records, **shared)
    return beside(claim, stored.records, ours, cell(stored.records, **shared, strategy="sequential"), None, chosen)


@RULES.add
def mpi_gpu_against_model(claim: Claim, stored: Stored) -> Verdict:
    """MPI over GPUs against model parallelism over the GPUs of one node: both need GPUs first."""
    cell(stored.records, experiment="weak", use_case=claim["use_case"], device="cuda", **OVER_MPI)
    raise NotNow(NOT_YET, "there are records of MPI over GPUs, but none of model parallelism over GPUs beside them")
