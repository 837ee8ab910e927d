"""Verdicts on training over Spark: SparkNet beside sequential training, beside one node, and with more data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.published_speedups import beside, cores_of_ranks
from lockstep.analysis.statistics import best_strategy, interval_of, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    NOT_YET,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    above_one,
    cell,
    each,
    join,
    settle,
)
from lockstep.experiments.e06_spark_distribution.tables import DATA, SPEEDUP, size_rates

RULES = Verdicts()

PAPER_STYLE = "sparknet"
"""§3.3.2: a map-reduce loop that is the driver's, over images that Spark holds in memory."""
EVERY_STEP, EVERY_TAU = "sparknet_files", "sparknet_tau"
"""SparkNet that exchanges in every step, and every tau steps; both read their images from files."""
NODE = ("mpi_shared_memory", "mpi_allreduce")
"""What uses the cores of one node without Spark."""
HELD: Mapping[str, str] = {
    PAPER_STYLE: "images as RDD",
    EVERY_STEP: "images as files",
    "mpi_allreduce": "without Spark",
}
"""How the rows of DATA come to their images; the first decides, for it is the paper's way."""
ONE_MACHINE = "Spark's executors and the node are the same machine: no network lies between them"


def _ours(records: pd.DataFrame, use_case: str, strategy: str) -> dict[str, Any]:
    """Conditions of a strategy with as many workers as were used at most."""
    ours = cell(records, experiment=SPEEDUP, use_case=use_case, strategy=strategy)
    return ours | {"workers": int(select(records, ours)["workers"].max())}


def _sequential(records: pd.DataFrame, use_case: str) -> dict[str, Any]:
    return cell(records, experiment=SPEEDUP, use_case=use_case, strategy="sequential")


def _judged(records: pd.DataFrame, above: dict[str, Any], under: dict[str, Any], text: str) -> Verdict:
    """Whether `above` has more images/s than `under`."""
    ratio = ratio_with_interval(records, above, under, "images_per_second")
    return above_one(ratio, aa_noise(records), text)


@RULES.add
def spark_speedup(claim: Claim, stored: Stored) -> Verdict:
    """Table 3, Spark on the CPU: SparkNet over sequential training, batch per worker fixed."""
    ours = _ours(stored.records, str(claim["use_case"]), PAPER_STYLE)
    base = _sequential(stored.records, str(claim["use_case"]))
    return beside(claim, stored.records, ours, base, cores_of_ranks(select(stored.records, ours)))


@RULES.add
def spark_slows_simple_big(claim: Claim, stored: Stored) -> Verdict:
    """Sequential training has more images/s than SparkNet. The number is SparkNet's speedup, as the claim's is."""

    def one(use_case: str) -> Verdict:
        ours, base = _ours(stored.records, use_case, PAPER_STYLE), _sequential(stored.records, use_case)
        found = _judged(
            stored.records, base, ours, f"times SparkNet's images/s by sequential training, {_workers(ours)}"
        )
        speedup = ratio_with_interval(stored.records, ours, base, "images_per_second")
        return replace(found, numbers=(("", speedup),))

    return each(claim, one)


@RULES.add
def spark_slower_than_node(claim: Claim, stored: Stored) -> Verdict:
    """The faster of NODE against SparkNet, with as many workers and cores. More nodes have more cores, too; at equal
    cores it is Spark itself that is compared."""

    def one(use_case: str) -> Verdict:
        ours = _ours(stored.records, use_case, PAPER_STYLE)
        node = cell(stored.records, experiment=SPEEDUP, use_case=use_case, workers=ours["workers"], strategy=list(NODE))
        count = select(stored.records, node)["strategy"].nunique()
        node["strategy"] = best_strategy(stored.records, node)
        if cores_of_ranks(select(stored.records, node)) != cores_of_ranks(select(stored.records, ours)):
            raise NotNow(NOT_YET, "Spark and the node had different numbers of cores: no fair comparison")
        name = f"{node['strategy']} (the faster of {count})" if count > 1 else node["strategy"]
        return _judged(stored.records, node, ours, f"times SparkNet's images/s by {name}, {_workers(ours)} each")

    found = each(claim, one)
    return replace(found, reason=f"{found.reason}; {ONE_MACHINE}") if found.measured else found


@RULES.add
def spark_more_data_worse(claim: Claim, stored: Stored) -> Verdict:
    """Images/s with the fewest images over those with the most. Images in an RDD decide; what executors read as files,
    and training without Spark, are measured beside them and named."""
    parts = [(text, settle(partial(_more_data, stored.records, name))) for name, text in HELD.items()]
    (_, decides), *others = parts
    if not decides.measured:
        return decides
    known = join([part for part in parts if part[1].measured])
    why = "; ".join(f"{text}: {part.reason}" for text, part in others)
    return replace(decides, measured=known.measured, reason=f"{decides.reason} ({HELD[PAPER_STYLE]}); {why}")


def _more_data(records: pd.DataFrame, strategy: str) -> Verdict:
    rates = size_rates(select(records, cell(records, experiment=DATA, strategy=strategy)))
    few, most = int(rates.columns.min()), int(rates.columns.max())
    if few == most:
        raise NotNow(NOT_YET, f"measured with {few} images only")
    ratios = (rates[few] / rates[most]).dropna()
    if ratios.empty:
        raise NotNow(NOT_YET, f"no round holds both {few} and {most} images")
    return above_one(interval_of(ratios), 0.0, f"times the images/s with {few} images as with {most}")


@RULES.add
def spark_few_nodes(claim: Claim, stored: Stored) -> Verdict:
    """SparkNet on a few executors: faster than sequential training while it seldom exchanges, and less so where it
    does in every step. Of the use cases that were trained with EVERY_TAU."""
    rows = select(stored.records, {"experiment": SPEEDUP, "strategy": EVERY_TAU}, status=None)
    parts = []
    for use_case in rows["use_case"].unique():
        parts.append((f"{use_case}, gain", settle(partial(_gain, stored.records, use_case))))
        parts.append((f"{use_case}, loss", settle(partial(_loss, stored.records, use_case))))
    if not parts:
        raise NotNow(NOT_YET, f"no records of {EVERY_TAU}")
    return join(parts)


def _gain(records: pd.DataFrame, use_case: str) -> Verdict:
    ours = _ours(records, use_case, EVERY_TAU)
    tau = int(select(records, ours)["exchange_every"].iloc[0])
    text = f"times sequential training, parameters every {tau} steps, {_workers(ours)}"
    return _judged(records, ours, _sequential(records, use_case), text)


def _loss(records: pd.DataFrame, use_case: str) -> Verdict:
    seldom, often = (_ours(records, use_case, name) for name in (EVERY_TAU, EVERY_STEP))
    if seldom["workers"] != often["workers"]:
        raise NotNow(NOT_YET, f"{EVERY_TAU} and {EVERY_STEP} had different numbers of workers")
    return _judged(records, seldom, often, f"times the images/s of exchanging in every step, {_workers(seldom)}")


def _workers(ours: dict[str, Any]) -> str:
    return f"{ours['workers']} worker{'' if ours['workers'] == 1 else 's'}"
