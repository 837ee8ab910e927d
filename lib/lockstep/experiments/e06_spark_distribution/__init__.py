"""Notebook 06: When is Spark a way to train, and where does its time go?"""

from __future__ import annotations

from lockstep.experiments.e06_spark_distribution.figures import FIGURES
from lockstep.experiments.e06_spark_distribution.findings import FINDINGS, answer
from lockstep.experiments.e06_spark_distribution.grid import cells, comparisons, traced
from lockstep.experiments.e06_spark_distribution.tables import TABLES
from lockstep.experiments.e06_spark_distribution.targets import TARGETS
from lockstep.experiments.e06_spark_distribution.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="06_spark_distribution",
    question="When is Spark a way to train, and where does its time go?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    answer_rests_on=("s2m-spark-slows-simplebig", "whether SparkNet is slower than one core for AlexNet"),
    findings=FINDINGS,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("s2m-table3-spark-cpu-simplebig", "s2m-spark-slower-than-node"),
    traced=traced,
)
