"""Notebook 03: When does cutting a model over devices pay?"""

from __future__ import annotations

from lockstep.experiments.e03_pipelined_model_parallelism.figures import FIGURES
from lockstep.experiments.e03_pipelined_model_parallelism.grid import cells, traced
from lockstep.experiments.e03_pipelined_model_parallelism.tables import TABLES
from lockstep.experiments.e03_pipelined_model_parallelism.targets import TARGETS
from lockstep.experiments.e03_pipelined_model_parallelism.traces import write_pipeline_traces
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="03_pipelined_model_parallelism",
    question="When does cutting a model over devices pay?",
    grid=cells,
    tables=TABLES,
    figures=FIGURES,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("s2m-pipelining-pays", "s2m-cpu-model-parallel-overhead"),
    traced=traced,
    after=write_pipeline_traces,
)
