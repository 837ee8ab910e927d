"""Verdicts on training over Spark: SparkNet beside sequential training, beside one node, and with more data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.noise import NOISE_OF_A_QUOTIENT, aa_noise
from lockstep.analysis.published_speedups import core_free_ratio, printed, same_on_any_cores, serial_loss
from lockstep.analysis.rules import above_one, enough, graded, has_more, with_seconds
from lockstep.analysis.statistics import BASELINE, Conditions, Estimate, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, Claim, NotNow, Verdict, Verdicts, cell, each, join, opposite, settle
from lockstep.experiments.e06_spark_distribution.tables import times_fewest, whole_batches
from lockstep.experiments.e06_spark_distribution.without_training import DATA, FEW, PAPER_STYLE, SPEEDUP

RULES = Verdicts()

EVERY_STEP, EVERY_TAU = "sparknet_files", "sparknet_tau"
"""SparkNet that exchanges in every step, and every tau steps; both read their images from files."""
NODE = "mpi_shared_memory"
"""What uses the cores of one node without Spark; chosen beforehand, not for its speed."""
HELD: Mapping[str, str] = {
    PAPER_STYLE: "images as RDD",
    EVERY_STEP: "images as files",
    "mpi_allreduce": "without Spark",
}
"""How the rows of DATA come to their images; the first decides, for it is the paper's way."""
ONE_MACHINE = "Spark's executors and the node are the same machine: no network lies between them"
_RATE = "images_per_second"


def _sequential(records: pd.DataFrame, use_case: str, experiment: str = SPEEDUP) -> dict[str, Any]:
    return cell(records, experiment=experiment, use_case=use_case, **BASELINE)


def _by_executors(records: pd.DataFrame, use_case: str) -> dict[int, dict[str, Any]]:
    """Conditions of the paper's way by its number of executors, which the paper does not state: the fewest first."""
    ours = cell(records, experiment=SPEEDUP, use_case=use_case, strategy=PAPER_STYLE)
    counts = sorted({int(count) for count in select(records, ours)["workers"]})
    return {count: ours | {"workers": count} for count in counts}


def _over_node(records: pd.DataFrame, use_case: str) -> tuple[Estimate, Estimate, list[Conditions]]:
    """Images/s of the node over the paper's way on as many cores, each measured beside sequential training; the node's
    own speedup; and all that was compared."""
    workers, ours = list(_by_executors(records, use_case).items())[-1]
    node = cell(records, experiment=SPEEDUP, use_case=use_case, strategy=NODE, workers=workers)
    cores = [
        int((rows["workers"] * rows["cores_per_worker"]).max())
        for rows in (select(records, side) for side in (node, ours))
    ]
    if cores[0] != cores[1]:
        raise NotNow(NOT_YET, "Spark and the node had different numbers of cores: no fair comparison")
    base = _sequential(records, use_case)
    gain, own = (ratio_with_interval(records, side, base, _RATE) for side in (node, ours))
    enough(min(gain.rounds, own.rounds))
    return gain.over(own), gain, [node, ours, base, base]


# Table 3


@RULES.add
def spark_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, Spark on the CPU: how MPI stands to Spark on equal cores, there and here.

    The speedup itself depends on executors and batch, of which the paper states neither: with some batch any number of
    executors gives the published one, so it is shown for each and not judged by one that was chosen here.
    """
    records, use_case = stored.records, str(claim["use_case"])
    ratio, gain, sides = _over_node(records, use_case)
    mpi, cores = printed(use_case, "MPI", table="table3"), int(sides[1]["workers"])
    readings = {
        "if both lose alike on more cores": same_on_any_cores(),
        "if what Spark loses is serial": serial_loss(mpi, gain, cores),
    }
    text = f"times SparkNet's images/s by {NODE}, {_workers(cores)} each"
    found = core_free_ratio(mpi, float(claim["value"]), ratio, text, readings)
    found = with_seconds(graded(found, found.grade, _by_itself(claim, records, use_case)), records, sides)
    most = ratio_with_interval(records, sides[1], sides[2], _RATE)
    return replace(found, numbers=(("", most),))


def _by_itself(claim: Claim, records: pd.DataFrame, use_case: str) -> str:
    """The speedup with each number of executors, and the batch that would give the published one."""
    base, published, told = _sequential(records, use_case), float(claim["value"]), []
    for count, ours in _by_executors(records, use_case).items():
        ratio = ratio_with_interval(records, ours, base, _RATE)
        batch = int(select(records, ours)["per_worker_batch_size"].iloc[0])
        other = _batch_of(published, ratio, count, batch)
        images = f"{batch} image{'' if batch == 1 else 's'} each"
        told.append(f"{ratio} times one core with {_workers(count)} at {images}{other}")
    return "; ".join(told)


def _batch_of(published: float, ratio: Estimate, workers: int, batch: int) -> str:
    """With which batch so many executors would give the published speedup, if what a step costs besides its images
    stays: a speedup r at a batch b is p x b / (lost + b) images."""
    if published >= workers:
        return ""
    lost = workers / ratio.value - 1
    if lost <= 0:
        return ""
    return f" ({published:g} at about {published * lost / (workers - published) * batch:.2g})"


@RULES.add
def spark_slows_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """Sequential training has more images/s than SparkNet, with every number of executors that was measured. The number
    is SparkNet's speedup, as the claim's is."""

    def one(use_case: str) -> Verdict:
        base, parts = _sequential(stored.records, use_case), []
        for count, ours in _by_executors(stored.records, use_case).items():
            text = f"times SparkNet's images/s by sequential training, {_workers(count)}"
            parts.append((_workers(count), settle(partial(has_more, stored.records, base, ours, text))))
        speedup = ratio_with_interval(stored.records, ours, base, _RATE)
        return replace(join(parts), numbers=(("", speedup),))

    return each(claim, one)


@RULES.add
def spark_slower_than_node(claim: Claim, stored: Stored) -> Verdict:
    """NODE against SparkNet, with as many workers and cores. More nodes have more cores, too; at equal cores it is
    Spark itself that is compared."""

    def one(use_case: str) -> Verdict:
        ratio, _, sides = _over_node(stored.records, use_case)
        text = f"times SparkNet's images/s by {NODE}, {_workers(int(sides[1]['workers']))} each"
        noise = NOISE_OF_A_QUOTIENT * aa_noise(stored.records)
        return with_seconds(above_one(ratio, noise, text), stored.records, sides)

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; {ONE_MACHINE}") if found.measured else found


# More data, few nodes: on the 50x50 network, whose steps are short


@RULES.add
def spark_more_data_worse(claim: Claim, stored: Stored) -> Verdict:
    """Images/s with the most images over those with the fewest. Images in an RDD decide; what executors read as files,
    and training without Spark, are measured beside them and named."""
    parts = [(text, settle(partial(_more_data, stored.records, name))) for name, text in HELD.items()]
    (_, decides), *others = parts
    if not decides.measured:
        return decides
    known = join([part for part in parts if part[1].measured])
    why = "; ".join(f"{text}: {part.reason}" for text, part in others)
    return replace(decides, measured=known.measured, reason=f"{decides.reason} ({HELD[PAPER_STYLE]}); {why}")


def _more_data(records: pd.DataFrame, strategy: str) -> Verdict:
    ours = cell(records, experiment=DATA, strategy=strategy)
    sizes = select(whole_batches(records), ours)["images"]
    if sizes.empty:
        raise NotNow(NOT_YET, "fewer images than its steps take")
    few, most = int(sizes.min()), int(sizes.max())
    if few == most:
        raise NotNow(NOT_YET, f"measured with {few} images only")
    ratio = times_fewest(records, ours, most)
    if ratio is None:
        raise NotNow(NOT_YET, f"no round holds both {few} and {most} images")
    found = above_one(ratio, aa_noise(records), f"times the images/s with {most} images as with {few}")
    return with_seconds(opposite(found), records, [ours | {"images": count} for count in (few, most)])


@RULES.add
def spark_few_nodes(claim: Claim, stored: Stored) -> Verdict:
    """SparkNet on a few executors: faster than sequential training while it seldom exchanges, and less so where it
    does in every step."""
    use_cases = select(stored.records, {"experiment": FEW, "strategy": EVERY_TAU}, status=None)["use_case"].unique()
    if not len(use_cases):
        raise NotNow(NOT_YET, f"no records of {EVERY_TAU}")
    records, parts = stored.records, []
    for use_case in use_cases:
        parts.append((f"{use_case}, gain", settle(partial(_gain, records, str(use_case)))))
        parts.append((f"{use_case}, loss", settle(partial(_loss, records, str(use_case)))))
    return join(parts)


def _few(records: pd.DataFrame, use_case: str, strategy: str) -> dict[str, Any]:
    ours = cell(records, experiment=FEW, use_case=use_case, strategy=strategy)
    return ours | {"workers": int(select(records, ours)["workers"].max())}


def _gain(records: pd.DataFrame, use_case: str) -> Verdict:
    ours = _few(records, use_case, EVERY_TAU)
    tau = int(select(records, ours)["exchange_every"].iloc[0])
    text = f"times sequential training, parameters every {tau} steps, {_workers(ours['workers'])}"
    return has_more(records, ours, _sequential(records, use_case, FEW), text)


def _loss(records: pd.DataFrame, use_case: str) -> Verdict:
    seldom, often = (_few(records, use_case, name) for name in (EVERY_TAU, EVERY_STEP))
    if seldom["workers"] != often["workers"]:
        raise NotNow(NOT_YET, f"{EVERY_TAU} and {EVERY_STEP} had different numbers of workers")
    return has_more(
        records, seldom, often, f"times the images/s of exchanging in every step, {_workers(seldom['workers'])}"
    )


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"
