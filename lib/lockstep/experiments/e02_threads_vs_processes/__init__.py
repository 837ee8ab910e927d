"""Notebook 02: Threads or processes: which trains faster on one machine?"""

from __future__ import annotations

from lockstep.experiments.e02_threads_vs_processes import gpu_verdicts, trace_verdicts, verdicts
from lockstep.experiments.e02_threads_vs_processes.figures import FIGURES
from lockstep.experiments.e02_threads_vs_processes.findings import FINDINGS, answer
from lockstep.experiments.e02_threads_vs_processes.grid import cells, comparisons, traced
from lockstep.experiments.e02_threads_vs_processes.tables import TABLES
from lockstep.experiments.e02_threads_vs_processes.targets import TARGETS
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="02_threads_vs_processes",
    question="Threads or processes: which trains faster on one machine?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts={**verdicts.RULES, **gpu_verdicts.RULES, **trace_verdicts.RULES},
    targets=TARGETS,
    headlines=("s2m-processes-beat-threads", "s2m-table1-cpu-multi-simplebig", "s2m-ram-lower"),
    traced=traced,
)
