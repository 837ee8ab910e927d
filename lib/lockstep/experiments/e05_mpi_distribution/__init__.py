"""Notebook 05: Over MPI and several machines: which way pays, and what does the network decide?"""

from __future__ import annotations

from lockstep.experiments.e05_mpi_distribution import cited_verdicts, gpu_verdicts, network_verdicts, verdicts
from lockstep.experiments.e05_mpi_distribution.answer import answer
from lockstep.experiments.e05_mpi_distribution.figures import FIGURES
from lockstep.experiments.e05_mpi_distribution.findings import FINDINGS
from lockstep.experiments.e05_mpi_distribution.grid import cells, traced
from lockstep.experiments.e05_mpi_distribution.pairs import comparisons
from lockstep.experiments.e05_mpi_distribution.tables import TABLES
from lockstep.experiments.e05_mpi_distribution.targets import TARGETS
from lockstep.experiments.e05_mpi_distribution.traces import write_step_traces
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="05_mpi_distribution",
    question="Over MPI and several machines: which way pays, and what does the network decide?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts={**cited_verdicts.RULES, **gpu_verdicts.RULES, **network_verdicts.RULES, **verdicts.RULES},
    targets=TARGETS,
    headlines=("s2m-local-decides", "s2m-table3-mpi-cpu-simplebig", "s2m-network-no-bottleneck"),
    traced=traced,
    after=write_step_traces,
)
