"""Which strategy for which need: rows of the README, each with what the stored records say it gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pandas as pd

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import briefly
from lockstep.analysis.statistics import BASELINE, ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import largest_table
from lockstep.experiments.report import Answered, markdown_table, read_all, targets_table

ROOMY = "interleaved_1f1b"
"""The schedule that the advice for a large model names, and whose number it gives."""


def _room(stored: Stored) -> str:
    table = largest_table(stored.shown.table("stages"))
    two = table[(table["pipeline_ranks"] == 2) & (table["schedule"] == ROOMY)] if len(table) else table
    return f"{two['times'].max():.3g}" if len(two) else ""


def _over_links(stored: Stored) -> str:
    link = {"experiment": "links", "use_case": "Pneumonia", "variant": "a"}
    hosts = {**link, "strategy": "allreduce", "link_bits_per_second": 1e10}
    try:
        return str(ratio_with_interval(stored.shown.records, hosts, {**link, **BASELINE}, "images_per_second"))
    except AnalysisError:
        return ""


@dataclass(frozen=True)
class Advice:
    """A reader's need, the strategy to try first, and the target of a notebook that measures what it gains, or what
    reads that from its records ("" for nothing). Of several rows for one need the largest number's is shown."""

    need: str
    strategy: str
    notebook: str
    target: str | Callable[[Stored], str]
    means: str  # what the number is


ADVICE = (
    Advice(
        "several cores of one machine", "`launcher=\"processes\", sync=\"shared_memory\"`", "02",
        "processes over the sequential baseline", "times one core's speed, two processes, AlexNet",
    ),
    Advice(
        "several cores of one machine", "`workers=1, threads_per_worker=<cores>`, then a process per core", "02",
        "threads inside operators over the sequential baseline", "times one core's speed, one process, AlexNet",
    ),
    Advice(
        "a small network, steps of milliseconds", "`launcher=\"engines\", sync=\"shared_memory\"`, a large batch", "08",
        "2 engines over sequential training, CNN, batch 128", "times one core's speed, two engines, batch 128",
    ),
    Advice(
        "a model too large for one worker",
        f"`model_parallel=\"pipeline\", schedule=\"{ROOMY}\", stages_per_rank=2`", "03",
        _room, "times as large a model as the largest that fits one worker, on two workers, by counted bytes",
    ),
    Advice(
        "several machines", "`lockstep mpi --sync allreduce`, a large batch", "05",
        _over_links, "times one core's speed, two emulated hosts with a core each at 10 Gbit/s, a small CNN",
    ),
    Advice(
        "data that are in Spark already", "`launcher=\"spark_driver\", sync=\"sparknet\"`, seldom exchanges", "06",
        "SparkNet: exchanging every tau steps over every step, 2 workers, the 50x50 network",
        "times the speed of exchanging in every step",
    ),
    Advice(
        "workers that fall behind", "`policy=\"deadline\"`", "11",
        "ours, the deadline, over the best policy that waits: time to loss, mix of all kinds",
        "times the best waiting policy's time to the same loss, simulated, eight workers without momentum",
    ),
)  # fmt: skip


def advice_table(results_root: Path) -> str:
    """A row per need, as Markdown: the strategy to try first, and what it gave in the stored records."""
    answered = {one.notebook.number: one for one in read_all(results_root)}
    needs = [list(own) for _, own in groupby(ADVICE, lambda each: each.need)]
    shown = [max(own, key=lambda each: _number(answered[each.notebook], each)) if own[1:] else own[0] for own in needs]
    rows = [
        {
            "You have": each.need,
            "Try first": each.strategy,
            "It gave here": f"{_reading(answered[each.notebook], each)} ([{each.notebook}]({_path(answered, each)}))",
        }
        for each in shown
    ]
    return markdown_table(pd.DataFrame(rows))


def _number(answered: Answered, each: Advice) -> tuple[bool, float]:
    """By what rows for one need are chosen: whether there is an interval, and the number; the first where all lack."""
    table = targets_table(answered.targets, answered.stored).set_index("what")
    measured = str(table["measured"].get(str(each.target), ""))
    return "[" in measured, float(measured.partition(" ")[0] or 0)


def _path(answered: dict[str, Answered], each: Advice) -> str:
    return f"notebooks/{answered[each.notebook].notebook.name}.ipynb"


def _reading(answered: Answered, each: Advice) -> str:
    """The number with its interval, and what keeps it from being one. Raises ValueError for a target that is none."""
    if not isinstance(each.target, str):
        return f"{briefly(told)} {each.means}" if (told := each.target(answered.stored)) else "not measured yet"
    table = targets_table(answered.targets, answered.stored).set_index("what")
    if each.target not in table.index:
        raise ValueError(f"notebook {each.notebook} has no target {each.target!r}; there are: {', '.join(table.index)}")
    measured, reached = table.loc[each.target, ["measured", "reached"]]
    if not measured:
        return "not measured yet"
    number, _, interval = measured.partition(" [")
    doubt = "" if interval else " (no interval yet: it may be no gain)"
    if reached.startswith("too few rounds"):
        doubt = f" (only {reached.partition(':')[2].strip()} rounds)"
    low, _, high = interval.rstrip("]").partition(", ")
    if interval and float(low) <= 1 <= float(high):
        doubt = " (may be no gain)"
    return f"{measured if interval else number.partition(' (')[0]} {each.means}{doubt}"
