"""Which experiments there are. A new one is its folder, its notebook and a line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import pandas as pd

from lockstep.analysis.published import PublishedError, read_claims
from lockstep.analysis.verdicts import COMMON
from lockstep.experiments.experiment import Experiment

EXPERIMENTS: tuple[str, ...] = (
    "00_overview",
    "01_single_node_baselines",
    "02_threads_vs_processes",
    "03_pipelined_model_parallelism",
    "04_hybrid_parallelism",
    "05_mpi_distribution",
    "06_spark_distribution",
    "07_convlstm_batch_size",
    "08_convlstm_scaling",
    "09_autotuning",
    "10_straggler_forecasts",
    "11_straggler_mitigation",
    "13_advisor",
)
"""The names of notebooks; each has a folder `e<name>` beside this file."""


class UnknownExperiment(ValueError):
    """There is no such experiment; the message lists those that exist."""


@cache
def experiment(name: str) -> Experiment:
    """An experiment by the name of its notebook or by its number alone. Raises UnknownExperiment."""
    for known in EXPERIMENTS:
        if name in (known, known.partition("_")[0]):
            found: Experiment = import_module(f"lockstep.experiments.e{known}").EXPERIMENT
            return found
    raise UnknownExperiment(f"experiment {name!r} does not exist; there are: {', '.join(EXPERIMENTS)}")


def every() -> list[Experiment]:
    """All experiments, by number."""
    return [experiment(name) for name in EXPERIMENTS]


def checked_claims() -> pd.DataFrame:
    """The claims of the ledger, each with a verdict function of its own experiment or one that all share.

    Raises PublishedError for a faulty ledger, and for a row whose verdict function does not exist.
    """
    claims = read_claims()
    for claim in claims.to_dict("records"):
        own = experiment(claim["notebook"]).verdicts if claim["notebook"] in EXPERIMENTS else {}
        known = sorted({*COMMON, *own})
        if claim["verdict"] not in known:
            raise PublishedError(
                f"claim {claim['id']!r}: verdict={claim['verdict']!r} is no verdict function of notebook "
                f"{claim['notebook'] or '(none)'}; write it in that experiment's verdicts.py or name one of: "
                f"{', '.join(known)}"
            )
    return claims
