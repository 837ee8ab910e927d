"""Which strategy for which need: rows of the README, each with what the stored records say it gave."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pandas as pd

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import briefly, listed
from lockstep.analysis.statistics import BASELINE, Conditions, ratio_or_reason
from lockstep.analysis.stored import Stored
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import largest_table
from lockstep.experiments.e05_mpi_distribution.findings import alexnet_over_links
from lockstep.experiments.e06_spark_distribution.tables import speedup_of
from lockstep.experiments.e11_straggler_mitigation.contenders import NEVER_WAIT, OURS, WAIT
from lockstep.experiments.e11_straggler_mitigation.learning import over
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import rival_ratio, rivals_table
from lockstep.experiments.report import Answered, markdown_table, read_all, targets_table

ROOMY = "interleaved_1f1b"
"""The schedule that the advice for a large model names, and whose number it gives."""


def _room(stored: Stored) -> str:
    table = largest_table(stored.shown.table("stages"))
    two = table[(table["pipeline_ranks"] == 2) & (table["schedule"] == ROOMY)] if len(table) else table
    if two.empty:
        return ""
    counted, peaks = two.loc[two["times"].idxmax(), ["times", "at_least"]].astype(float)
    return f"{peaks:.3g} to {counted:.3g}" if peaks < counted else f"{counted:.3g}"


def _over(stored: Stored, shared: Conditions, ours: Conditions, base: Conditions = BASELINE) -> str:
    """Images per second of one cell over another's, with its interval; "" where that is not measured."""
    pair = ({**shared, **ours}, {**shared, **base})
    ratio, _ = ratio_or_reason(stored.shown.records, *pair, "images_per_second")
    return str(ratio or "")


def _over_links(stored: Stored) -> str:
    link = {"experiment": "links", "use_case": "Pneumonia", "variant": "a"}
    return _over(stored, link, {"strategy": "allreduce", "link_bits_per_second": 1e10})


_FEW = {"experiment": "few", "use_case": "Pneumonia", "variant": "a"}
_SELDOM = {"strategy": "sparknet_tau", "workers": 2}


def _barrier_over_one_core(stored: Stored) -> str:
    cell = {"experiment": "speedup", "use_case": "SimpleBig", "device": "cpu", "variant": "a"}
    return str(speedup_of(stored.shown.records, {**cell, "strategy": "spark_shared_memory", "workers": 2}) or "")


def _sparks_own_loop(stored: Stored) -> str:
    found = _over(stored, _FEW, _SELDOM)
    return f"Spark's own loop on files, with seldom exchanges, {found} times, the 50x50 network" if found else ""


def _over_waiting(stored: Stored, name: str = NEVER_WAIT) -> str:
    """A policy's time to the same loss over that of waiting for all, without momentum."""
    try:
        return str(over(stored.shown, name, WAIT))
    except AnalysisError:
        return ""


def _deadline_over_waiting(stored: Stored) -> str:
    found = _over_waiting(stored, OURS)
    return f"updating at a deadline, {found} times" if found else ""


def _waiting_with_momentum(stored: Stored) -> str:
    """How waiting for all stands to the deadline with momentum, by the number of workers: where the interval leaves 1
    out, and with how many it holds 1."""
    table, decided, alike = rivals_table(stored.shown), [], []
    for workers in sorted({int(count) for count in table["workers"]}) if len(table) else ():
        try:
            found = rival_ratio(stored.shown, workers, WAIT, OURS)
        except AnalysisError:
            continue
        if found.low <= 1 <= found.high:
            alike.append(str(workers))
        else:
            decided.append(f"{found} times ({workers} workers)")
    told = [listed(decided), f"no difference shown with {listed(alike)}" if alike else ""]
    return f"{' and '.join(filter(None, told))}:" if decided or alike else ""


@dataclass(frozen=True)
class Advice:
    """A reader's need, the strategy to try first, and the target of a notebook that measures what it gains, or what
    reads that from its records ("" for nothing). Of several rows for one need the largest number's is shown."""

    need: str
    strategy: str
    notebook: str
    target: str | Callable[[Stored], str]
    means: str  # what the number is, and of what it is a multiple
    beside: Callable[[Stored], str] | None = None  # what else a reader has to know, with its numbers; "" for nothing


ADVICE = (
    Advice(
        "several cores of one machine", "`launcher=\"processes\", sync=\"shared_memory\"`", "02",
        "processes over the sequential baseline", "times one tuned core's speed, two processes, AlexNet",
    ),
    Advice(
        "several cores of one machine", "`workers=1, threads_per_worker=<cores>`, then a process per core", "02",
        "threads inside operators over the sequential baseline", "times one tuned core's speed, one process, AlexNet",
    ),
    Advice(
        "a small network, steps of milliseconds", "`launcher=\"engines\", sync=\"shared_memory\"`, a large batch", "08",
        "2 engines over sequential training, CNN, batch 128", "times one tuned core's speed, two engines, batch 128",
    ),
    Advice(
        "a model too large for one worker",
        f"`model_parallel=\"pipeline\", schedule=\"{ROOMY}\", stages_per_rank=2`", "03",
        _room, "times as large a model as the largest that fits one worker, by measured peaks and by counted bytes",
    ),
    Advice(
        "several machines", "`lockstep mpi --sync allreduce`, a large batch", "05",
        _over_links, "times one tuned core's speed, two emulated hosts at 10 Gbit/s, a small CNN, mean over processors",
        alexnet_over_links,
    ),
    Advice(
        "a Spark cluster", "`launcher=\"spark\", sync=\"shared_memory\"` (barrier mode)", "06",
        _barrier_over_one_core, "times one tuned core's speed, two workers, AlexNet", _sparks_own_loop,
    ),
    Advice(
        "workers that fall behind, plain SGD", "`sync=\"parameter_server\", servers=1, policy=\"asynchronous\"`", "11",
        _over_waiting, "times waiting for all's time to the same loss, simulated, eight workers",
        _deadline_over_waiting,
    ),
    Advice(
        "workers that fall behind, SGD with momentum", "waiting for all (the default)", "11",
        _waiting_with_momentum, "waiting for all's time to the same loss over the deadline's, simulated, slower server",
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
    """The number with its interval, what keeps it from being a gain, and what else there is to know. Raises ValueError
    for a target that is none."""
    number, doubt = _number_and_doubt(answered, each)
    if not number:
        return "not measured yet"
    beside = briefly(each.beside(answered.stored)) if each.beside is not None else ""
    return f"{number} {each.means}{doubt}{f'; {beside}' if beside else ''}"


def _number_and_doubt(answered: Answered, each: Advice) -> tuple[str, str]:
    if not isinstance(each.target, str):
        told = briefly(each.target(answered.stored))
        return told, _no_gain(told)
    table = targets_table(answered.targets, answered.stored).set_index("what")
    if each.target not in table.index:
        raise ValueError(f"notebook {each.notebook} has no target {each.target!r}; there are: {', '.join(table.index)}")
    measured, reached = table.loc[each.target, ["measured", "reached"]]
    if "[" in measured:
        differ = " (sessions differ)" if "(sessions differ)" in briefly(reached) else ""
        return f"{measured}{differ}", _no_gain(measured)
    rare = reached.startswith("too few rounds")
    doubt = f"only {reached.partition(':')[2].strip()} rounds" if rare else "no interval yet: it may be no gain"
    return measured.partition(" (")[0], f" ({doubt})"


def _no_gain(told: str) -> str:
    """Says so of a number whose interval holds 1."""
    found = re.search(r"\[([^],]+), ([^]]+)\]", told)
    return " (may be no gain)" if found is not None and float(found[1]) <= 1 <= float(found[2]) else ""
