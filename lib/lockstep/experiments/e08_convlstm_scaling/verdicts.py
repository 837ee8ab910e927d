"""Verdicts on scaling: Table 3, the speedup on five nodes, and accuracy against workers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import highest
from lockstep.analysis.learning_rules import BY_DESIGN, gained, within_points
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.rules import enough, graded, with_seconds, within
from lockstep.analysis.seeds import diverged, paired_points
from lockstep.analysis.statistics import MIN_ROUNDS, AnalysisError, mean_of, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import SHARED_CORES
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    any_of,
    cell,
    join,
    ran,
    settle,
)
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.experiments.e08_convlstm_scaling.bounds import Bound, bound, least_batch, needed_link, readings, times
from lockstep.experiments.e08_convlstm_scaling.findings_of_clusters import link_error, the_network
from lockstep.experiments.e08_convlstm_scaling.forecasts import BATCH, NODES, cluster_of
from lockstep.experiments.e08_convlstm_scaling.table3 import FIVE_NODES, published_times, table3
from lockstep.experiments.e08_convlstm_scaling.tables import LEARNING, one_worker_of
from lockstep.predict.cost_check import held_out_error
from lockstep.predict.cost_model import Costs, calibrated, fewest_rounds, modelled, recalibrated

RULES = Verdicts()

PAPER_NETWORK, PAPER_EPOCHS = "convlstm", 10
SERVED = "parameter_server"
STAND_IN = "the stand-in's accuracy says nothing about the paper's images"


def _own_core(records: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    """Rows of strong scaling, data parallel, in which every rank had a core of its own. Raises NotNow for none."""
    rows = modelled(records, ("strong",)) if len(records) else records
    wanted = {"use_case": claim["use_case"], "network": PAPER_NETWORK}
    good = ran(select(rows, wanted, status=None) if len(rows) else rows, f"strong scaling of {claim['use_case']}")
    return good[~good["reason"].astype(str).str.contains(SHARED_CORES)]


@RULES.add
def table3_time_ratio(claim: Claim, stored: Stored) -> Verdict:
    """The time on 5 nodes over that on more, a parameter server and the rest workers: as measured where every rank had
    a core of its own, otherwise by what an infinitely fast link would allow."""
    nodes = int(re.findall(r"(\d+) nodes", str(claim["statement"]))[-1])
    rows = _own_core(stored.records, claim)
    served = rows[rows["strategy"] == SERVED]
    if not {FIVE_NODES - 1, nodes - 1} <= {int(count) for count in served["workers"]}:
        return _bounded(claim, stored, FIVE_NODES - 1, nodes - 1)
    batch = int(served["global_batch_size"].max())
    sides: list[dict[str, Any]] = [
        {"experiment": "strong", "use_case": claim["use_case"], "network": PAPER_NETWORK, "strategy": SERVED}
        | {"workers": count - 1, "global_batch_size": batch}
        for count in (FIVE_NODES, nodes)
    ]
    ratio = ratio_with_interval(stored.records, sides[0], sides[1], "step_seconds")
    return with_seconds(within(float(claim["value"]), ratio, f"{ratio} times, a step of {batch} images"),
                        stored.records, sides)  # fmt: skip


def _bounded(claim: Claim, stored: Stored, few: int, many: int) -> Verdict:
    """What a link of infinite rate and no latency would allow at every batch that the paper may mean: contradicted
    where none allows the published number, otherwise undecided, for the paper states neither batch nor link. The
    chance that this is wrong is what the calibration's rounds leave to the kindest batch."""
    published, images = float(claim["value"]), cluster_of(stored).epoch_images
    costs, draws, rounds = _models(stored, str(claim["use_case"]))
    enough(rounds, seen=" of a cell that the cost model is fitted to, undisturbed and on one processor")
    bounds = [bound(costs, draws, rounds, reading, few, many) for reading in readings(images)]
    measured = f"at most {'; '.join(str(one) for one in bounds)}: modelled, on an infinitely fast link"
    possible = [one for one in bounds if one.allows(published)]
    if not possible:
        why = f"no batch allows {published:g}, nor a number within {TOLERANCE:.0%} of it, whatever the link"
        chance = max(one.chance(published) for one in bounds)
        return Verdict(CONTRADICTED, measured, f"{why}; {_model_error(stored)}", grade=MODEL, chance=chance)
    batch = least_batch(costs, published, few, many, images)
    parts = [f"the paper states neither the batch nor the link; {published:g} is possible"]
    parts[0] += f" from steps of {batch} images on" if batch else " with a batch for each worker only"
    large = [one for one in possible if one.reading.per_worker or one.reading.images > BATCH]
    parts += [_link_text(costs, one, published) for one in large]
    more = max(one.rounds_more(published) for one in possible)
    return Verdict(UNDECIDED, measured, "; ".join([*parts, _model_error(stored)]), grade=MODEL, rounds_more=more)


def _link_text(costs: Costs, one: Bound, published: float) -> str:
    """The slowest link that a published number takes, by a server and by all-reduce."""
    ways, asked = {"a server": SERVED, "all-reduce": "allreduce"}, (one.reading, published, one.few, one.many)
    found = [f"{needed_link(costs, *asked, sync)} by {name}" for name, sync in ways.items()]
    return f"at {one.reading} from {' and '.join(found)} on, without latency"


def _models(stored: Stored, use_case: str) -> tuple[Costs, list[Costs], int]:
    """The calibrated model, what other draws of its rounds would make of it, and how many rounds it has at least."""
    sides = (on_one_processor(stored)[0], use_case, PAPER_NETWORK)
    try:
        return calibrated(*sides), recalibrated(*sides), fewest_rounds(*sides)
    except AnalysisError as error:
        alone = "rounds that no other program disturbed, on which alone a verdict rests"
        raise NotNow(NOT_YET, f"the cost model has too few cells in {alone}: {error}") from None


def _model_error(stored: Stored) -> str:
    try:
        found, count, _ = held_out_error(on_one_processor(stored)[0])
    except AnalysisError:
        return "the model's error was not measured"
    told = f"the model errs by {found.value:.1%} on {count} cells that it never saw, in undisturbed rounds"
    return "; ".join(filter(None, (told, link_error(stored))))


@RULES.add
def speedup_five_nodes(claim: Claim, stored: Stored) -> Verdict:
    """As measured where four workers (and a server) had a core each; otherwise by the ideal of all five nodes training,
    which no batch and no link exceeds."""
    rows = _own_core(stored.records, claim)
    rows = rows[rows["workers"] <= FIVE_NODES]
    if rows.empty:
        raise NotNow(NOT_YET, f"no records of at most {FIVE_NODES} workers with a core each")
    batch, workers = int(rows["global_batch_size"].max()), int(rows["workers"].max())
    beside = _measured_speedup(stored, claim, rows, batch, workers) if workers > 1 else None
    if beside is not None and workers >= FIVE_NODES - 1:
        return beside
    published = float(claim["value"])
    if (1 - TOLERANCE) * published <= FIVE_NODES:
        found = _bounded(claim, stored, 1, FIVE_NODES)
    else:
        why = (
            f"{published:g} is {published / FIVE_NODES:.3g} times the ideal of 5 workers and "
            f"{published / (FIVE_NODES - 1):.3g} times that of the 4 that train beside a server: no batch and no link "
            "allows it over the same training on one such node, and no other base is named; "
            f"{_fewest_nodes(stored, claim)}"
        )
        found = Verdict(CONTRADICTED, "", why, grade=BOUND)
    return found if beside is None else replace(found, measured=beside.measured, numbers=beside.numbers)


def _measured_speedup(stored: Stored, claim: Claim, rows: pd.DataFrame, batch: int, workers: int) -> Verdict | None:
    """The fastest way to spread one batch over so many workers, with an interval that pays for the choice; None where
    no round has both."""
    shared = {"experiment": "strong", "use_case": claim["use_case"], "network": PAPER_NETWORK}
    shared |= {"global_batch_size": batch, "variant": "a"}
    own = rows[(rows["workers"] == workers) & (rows["global_batch_size"] == batch)]
    base, names = cell(stored.records, **shared, strategy="sequential"), list(dict.fromkeys(own["strategy"]))
    sides = [shared | {"strategy": name, "workers": workers} for name in names]
    try:
        found = [ratio_with_interval(stored.records, side, base, "images_per_second") for side in sides]
    except AnalysisError:
        return None
    ratio, best = highest(found), names[max(range(len(found)), key=lambda place: found[place].value)]
    if ratio.rounds < MIN_ROUNDS and workers >= FIVE_NODES - 1:
        enough(ratio.rounds)
    whose = f"the fastest of {len(found)}, whose choice the interval pays for" if len(found) > 1 else "the only way"
    called = the_network(PAPER_NETWORK)
    measured = f"{ratio} times one worker, {called}, {workers} workers with a core each, batch {batch}"
    measured += f" ({STRATEGIES[best].label}, {whose}; undisturbed rounds alone, so it may differ from the answer)"
    if ratio.rounds < MIN_ROUNDS:
        return Verdict(UNDECIDED, measured, numbers=(("", ratio),))
    return with_seconds(within(float(claim["value"]), ratio, measured), stored.records, [*sides, base])


def _fewest_nodes(stored: Stored, claim: Claim) -> str:
    """From how many nodes on, a server among them, the number is possible, by the model and at the paper's batches."""
    try:
        costs, _, _ = _models(stored, str(claim["use_case"]))
    except NotNow:
        return "the model of more nodes has too few cells in rounds that no other program disturbed"
    wanted, parts = (1 - TOLERANCE) * float(claim["value"]), []
    for reading in readings(cluster_of(stored).epoch_images):
        counts = [count for count in NODES if count > 1 and times(costs, reading, 1, count - 1) >= wanted]
        parts.append(f"{min(counts)} nodes at {reading}" if counts else f"more than {max(NODES)}, if any, at {reading}")
    return f"modelled on an infinitely fast link it takes {', '.join(parts)} ({_model_error(stored)})"


# Accuracy


def _learned(records: pd.DataFrame, claim: Claim) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Cells of Figure 8: the paper's "proposed model" after its epochs, on real images. Raises NotNow for none."""
    wanted = {"experiment": LEARNING, "use_case": claim["use_case"], "network": PAPER_NETWORK, "variant": "a"}
    rows = select(records, wanted, status=None) if len(records) else records
    ran(rows, f"accuracy of {PAPER_NETWORK} on {claim['use_case']} against workers")
    if (rows["epochs"] != PAPER_EPOCHS).all():
        lengths = ", ".join(f"{count:.0f}" for count in sorted(set(rows["epochs"])))
        raise NotNow(NOT_YET, f"trained for {lengths} epochs; the paper's are {PAPER_EPOCHS}")
    rows = rows[rows["epochs"] == PAPER_EPOCHS]
    good = ran(rows, f"accuracy of {PAPER_NETWORK} on {claim['use_case']} after {PAPER_EPOCHS} epochs")
    if lost := diverged(rows):
        raise NotNow(NOT_YET, f"{lost} of {len(rows)} trainings diverged: there are no means over all seeds")
    real = good[(good["data_source"] == "real") & good["test_accuracy"].notna()]
    if real.empty:
        raise NotNow(NEEDS_HARDWARE, STAND_IN)
    return cells(real)


@RULES.add
def table3_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """The most accurate of the cells with the most workers, on the images of the test split or on those that were
    trained on, for Table 3 does not say which."""
    found = _learned(stored.records, claim)
    workers = max(one["workers"] for one, _ in found)
    own = [(one, rows) for one, rows in found if one["workers"] == workers]
    batches = " and ".join(str(one["global_batch_size"]) for one, _ in own)
    parts = []
    for name, measure in (("test images", "test_accuracy"), ("training images", "train_accuracy")):
        known = [rows[measure].dropna() for _, rows in own if rows[measure].notna().any()]
        if known:
            mean = highest([mean_of(100 * values) for values in known])
            text = f"{mean} %, {PAPER_NETWORK}, {workers} workers, batch {batches}"
            parts.append((name, settle(partial(within_points, float(claim["value"]), mean, text))))
    verdict = with_seconds(any_of(parts), stored.records, [one for one, _ in own])
    return graded(verdict, MEASURED, "Table 3 does not say on which images")


@RULES.add
def scaling_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Is training on the most workers more accurate than on one, at every batch and paired by seed? If that is not
    shown, Table 3 decides: it prints one accuracy for all its numbers of nodes."""
    verdict = settle(partial(_more_accurate, claim, stored))
    printed = published_times(table3())["published_accuracy"]
    if verdict.answer == SUPPORTED or printed.nunique() > 1:
        return graded(verdict, verdict.grade, BY_DESIGN)
    why = f"Table 3 prints {printed.iloc[0]:g} % for every number of nodes; {BY_DESIGN}, so none can be expected"
    beside = f"; here {verdict.answer}: {verdict.reason}"
    return replace(verdict, answer=CONTRADICTED, reason=why + beside, grade=PAPER, chance=0.0)


def _more_accurate(claim: Claim, stored: Stored) -> Verdict:
    found = [one for one, _ in _learned(stored.records, claim)]
    workers = max(one["workers"] for one in found)
    if workers == 1:
        raise NotNow(NOT_YET, "trained by one worker only")
    parts = []
    for one in (each for each in found if each["workers"] == workers):
        try:
            points = paired_points(stored.records, one, one_worker_of(one))
        except AnalysisError:
            continue
        text = f"{points} points, {workers} workers minus one"
        part = with_seconds(settle(partial(gained, points, text)), stored.records, (one, one_worker_of(one)))
        parts.append((f"batch {one['global_batch_size']}", part))
    if not parts:
        raise NotNow(NOT_YET, f"no seed was trained by one worker and by {workers}")
    return join(parts)
