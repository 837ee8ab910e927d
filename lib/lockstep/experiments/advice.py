"""Which strategy for which need: rows of the README, each with what the stored records say it gave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lockstep.experiments.report import Answered, markdown_table, read_all, targets_table


@dataclass(frozen=True)
class Advice:
    """A reader's need, the strategy to try first, and the target of a notebook that measures what it gains."""

    need: str
    strategy: str
    notebook: str
    target: str
    means: str  # what the target's number is


ADVICE = (
    Advice(
        "several cores of one machine", "`launcher=\"processes\", sync=\"shared_memory\"`", "02",
        "processes over the sequential baseline", "times one core's speed, two processes, AlexNet",
    ),
    Advice(
        "a small network, steps of milliseconds", "`launcher=\"engines\", sync=\"shared_memory\"`, a large batch", "08",
        "2 engines over sequential training, CNN, batch 128", "times one core's speed, two engines, batch 128",
    ),
    Advice(
        "a model too large for one worker", "`model_parallel=\"pipeline\"`, several micro-batches", "03",
        "pipelined over naive model parallelism, 2 stages on 2 cores", "times layers on two workers without a pipeline",
    ),
    Advice(
        "several machines", "`lockstep mpi --sync shared_memory`", "05",
        "bytes between 2 hosts of 2 ranks: shared memory per host over an all-reduce of every rank with every other",
        "times the bytes of an exchange of every rank with every other",
    ),
    Advice(
        "data that are in Spark already", "`launcher=\"spark_driver\", sync=\"sparknet\"`, seldom exchanges", "06",
        "SparkNet: exchanging every tau steps over every step, 2 workers, the 50x50 network",
        "times the speed of exchanging in every step",
    ),
    Advice(
        "workers that fall behind", "`policy=\"deadline\"`", "11",
        "ours, the deadline, over the best policy that waits: time to loss, mix of all kinds",
        "times the best waiting policy's time to the same loss, simulated",
    ),
)  # fmt: skip


def advice_table(results_root: Path) -> str:
    """A row per need, as Markdown: the strategy to try first, and what it gave in the stored records."""
    answered = {one.notebook.number: one for one in read_all(results_root)}
    rows = [
        {
            "You have": each.need,
            "Try first": each.strategy,
            "It gave here": f"{_reading(answered[each.notebook], each)} ([{each.notebook}]({_path(answered, each)}))",
        }
        for each in ADVICE
    ]
    return markdown_table(pd.DataFrame(rows))


def _path(answered: dict[str, Answered], each: Advice) -> str:
    return f"notebooks/{answered[each.notebook].notebook.name}.ipynb"


def _reading(answered: Answered, each: Advice) -> str:
    """The number with its interval, and what keeps it from being one. Raises ValueError for a target that is none."""
    table = targets_table(answered.targets, answered.stored).set_index("what")
    if each.target not in table.index:
        raise ValueError(f"notebook {each.notebook} has no target {each.target!r}; there are: {', '.join(table.index)}")
    measured, reached = table.loc[each.target, ["measured", "reached"]]
    if not measured:
        return "not measured yet"
    doubt = "" if measured.endswith(("]", ")")) else " (no interval yet: it may be no gain)"
    if reached.startswith("too few rounds"):
        doubt = f" (only {reached.partition(':')[2].strip()} rounds)"
    return f"{measured} {each.means}{doubt}"
