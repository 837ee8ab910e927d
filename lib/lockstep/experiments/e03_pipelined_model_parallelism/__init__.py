"""Notebook 03: When does cutting a model over devices pay?"""

from __future__ import annotations

from lockstep.experiments.e03_pipelined_model_parallelism import gpu_verdicts, verdicts
from lockstep.experiments.e03_pipelined_model_parallelism.answer import answer
from lockstep.experiments.e03_pipelined_model_parallelism.figures import FIGURES
from lockstep.experiments.e03_pipelined_model_parallelism.findings import FINDINGS
from lockstep.experiments.e03_pipelined_model_parallelism.grid import cells, comparisons, traced
from lockstep.experiments.e03_pipelined_model_parallelism.tables import TABLES
from lockstep.experiments.e03_pipelined_model_parallelism.targets import TARGETS
from lockstep.experiments.e03_pipelined_model_parallelism.traces import write_pipeline_traces
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="03_pipelined_model_parallelism",
    question="When does cutting a model over devices pay?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    answer_rests_on=("s2m-cpu-model-parallel-overhead", "whether cutting is overhead only"),
    findings=FINDINGS,
    verdicts={**verdicts.RULES, **gpu_verdicts.RULES},
    targets=TARGETS,
    headlines=("s2m-pipelining-pays", "s2m-cpu-model-parallel-overhead"),
    traced=traced,
    after=write_pipeline_traces,
)
