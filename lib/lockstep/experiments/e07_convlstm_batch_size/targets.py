"""What notebook 07 aims at: accuracy of the chosen settings, distributed beside sequential training, and speed."""

from __future__ import annotations

import math

import pandas as pd

from lockstep.analysis.confidence import highest
from lockstep.analysis.seeds import MARGIN, SPEED, diverged
from lockstep.analysis.statistics import Estimate, select
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.targets import AT_MOST, MISSING, Read, Reading, Target, lacking
from lockstep.analysis.verdicts import NOT_YET
from lockstep.experiments.e07_convlstm_batch_size.score_findings import SCORE_TARGETS
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import paired_table
from lockstep.experiments.e07_convlstm_batch_size.tables.choice import choice_table, quoted
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import framework_table, speed_table
from lockstep.experiments.e07_convlstm_batch_size.verdicts import OTHER_IMAGES

USE_CASE = "Pneumonia"
LARGE_BATCH = 128
PAIRED_WORKERS = {2, 4}
_NETWORKS = {"cnn": "CNN", "convlstm": "ConvLSTM"}
_choice = once(lambda stored: choice_table(stored.records))  # for four targets
_quoted = once(lambda stored: quoted(stored.records, stored.records))


def _rows(records: pd.DataFrame, experiment: str, **conditions: object) -> pd.DataFrame:
    return select(records, {"experiment": experiment, "use_case": USE_CASE, **conditions}, status=None)


def _chosen(network: str) -> Read:
    """Mean test accuracy (%) of the setting that validation data chose, of real images."""

    def read(stored: Stored) -> Reading:
        rows = _rows(stored.records, "selected", network=network)
        ok = rows[(rows["status"] == "ok") & rows["test_accuracy"].notna()]
        if ok.empty:
            return lacking([rows], MISSING)
        if set(ok["data_source"]) != {"real"}:
            return Reading(None, NOT_YET, OTHER_IMAGES)
        table = _choice(stored)
        (row,) = [row for _, row in table.iterrows() if (row["use_case"], row["network"]) == (USE_CASE, network)]
        if row["consistent"] != "yes":
            reason = "the setting that validation data chose is no finalist"
            return Reading(None, NOT_YET, reason if row["consistent"] == "no" else row["consistent"])
        rows = _rows(_quoted(stored), "selected", network=network)
        if lost := diverged(rows):
            return Reading(None, NOT_YET, f"{lost} of {len(rows)} seeds diverged: there is no mean over all of them")
        ratio = Estimate(row["accuracy"], row["accuracy_low"], row["accuracy_high"], int(row["seeds"]))
        return Reading(ratio, reason=f"{row['chosen']}; one of {row['candidates']} candidates")

    return read


def _worst_pair(stored: Stored) -> Reading:
    """The end of an interval that is farthest from 0, over all networks and numbers of workers, on real images. There
    is no number while a pair is missing, or while no strategy was trained with all of PAIRED_WORKERS."""
    rows = _rows(stored.records, "paired")
    table = paired_table(stored.records[stored.records["use_case"] == USE_CASE])
    known = table[table["points"].notna()] if len(table) else table
    if (lost := diverged(rows)) and len(known):
        return Reading(
            None, NOT_YET, f"{lost} of {len(rows)} trainings diverged, which a difference of the others would hide"
        )
    if known.empty:
        return lacking([rows], MISSING)
    if set(known["data_source"]) != {"real"}:
        return Reading(None, NOT_YET, OTHER_IMAGES)
    if len(known) < len(table):
        first = table[table["points"].isna()].iloc[0]
        without = f"{len(table) - len(known)} of {len(table)} pairs have no difference"
        return Reading(None, NOT_YET, f"{without}: {_pair_text(first)}: {first['reason']}")
    for network, own in known[known["way"] == "data parallel"].groupby("network", sort=False):
        if untried := PAIRED_WORKERS - set(own["workers"]):
            workers = " and ".join(str(count) for count in sorted(untried))
            return Reading(None, NOT_YET, f"{network}: no data-parallel pair with {workers} workers")
    ends = known[["points", "points_low", "points_high"]].abs().max(axis=1)
    worst, end = known.loc[ends.idxmax()], float(ends.max())
    mean = f"{worst['points']:.2g} [{worst['points_low']:.2g}, {worst['points_high']:.2g}] points"
    lengths = ", ".join(dict.fromkeys(str(text) for text in known["budget"]))
    networks = " and ".join(dict.fromkeys(known["network"]))
    text = f"the worst of {len(known)} ({networks}; {lengths}): {mean}, {_pair_text(worst)}; {worst['setting']}"
    return Reading(Estimate(end, end, end, int(known["seeds"].min())), reason=text)


def _pair_text(row: pd.Series) -> str:
    return f"{row['network']}, {row['workers']} workers, {row['strategy']}"


def _frameworks(stored: Stored) -> Reading:
    """Seconds of TensorFlow's ConvLSTM step over torch's, at the batch size where that is lowest."""
    own = stored.records[stored.records["use_case"] == USE_CASE]
    table = framework_table(own)
    table = table[(table["network"] == "convlstm") & (table["strategy"] == "sequential")] if len(table) else table
    known = table[table["ratio"].notna()] if len(table) else table
    if known.empty:
        sides = [_rows(stored.records, SPEED, framework=name, network="convlstm") for name in ("torch", "tensorflow")]
        return lacking(sides, MISSING)
    return _lowest(known, "ratio")


def _data_parallel(stored: Stored) -> Reading:
    """The fastest data-parallel way with 2 workers over sequential training, with an interval that pays for that
    choice, at the large batch and network where it is lowest."""
    table = speed_table(stored.records[stored.records["use_case"] == USE_CASE])
    if len(table):
        table = table[(table["way"] == "data parallel") & (table["workers"] == 2) & (table["framework"] == "torch")]
        table = table[table["variant"] == "a"]
        table = table[(table["global_batch_size"] >= LARGE_BATCH) & table["network"].isin(_NETWORKS)]
    known = table[table["speedup"].notna()] if len(table) else table
    if known.empty:
        return lacking([_rows(stored.records, SPEED, workers=2)], f"no batch of {LARGE_BATCH} or more was timed")
    fastest = [_fastest(own) for _, own in known.groupby(["network", "global_batch_size"])]
    return _lowest(pd.DataFrame(fastest), "speedup")


def _fastest(table: pd.DataFrame) -> pd.Series:
    """The row with the highest speedup, whose interval is that of the highest of all rows."""
    found = [
        Estimate(float(row["speedup"]), float(row["low"]), float(row["high"]), int(row["rounds"]))
        for _, row in table.fillna({"low": 0.0, "high": math.inf}).iterrows()
    ]
    best = highest(found)
    row = table.loc[table["speedup"].idxmax()].copy()
    row["speedup"], row["low"], row["high"] = best.value, best.low, best.high
    return row


def _lowest(table: pd.DataFrame, name: str) -> Reading:
    worst = table.loc[table[name].idxmin()]
    ratio = Estimate(float(worst[name]), float(worst["low"]), float(worst["high"]), int(worst["rounds"]))
    text = f"{worst['network']}, batch {worst['global_batch_size']}, {worst['strategy']}"
    return Reading(ratio, reason=f"the lowest of {len(table)}: {text}" if len(table) > 1 else text)


def _accuracies() -> tuple[Target, ...]:
    what = "test accuracy of the setting chosen on validation data, mean over seeds, %"
    aims = ((86.0, what), (90.0, "the same, aimed at"))
    return tuple(
        Target(f"{USE_CASE}, {label}: {text}", aim, _chosen(network))
        for network, label in _NETWORKS.items()
        for aim, text in aims
    )


TARGETS: tuple[Target, ...] = (
    *_accuracies(),
    Target(
        "distributed minus sequential accuracy, farthest end of a 95 % interval, points", MARGIN, _worst_pair, AT_MOST
    ),
    *SCORE_TARGETS,
    Target("TensorFlow's ConvLSTM step over torch's, seconds", 1.0, _frameworks),
    Target(f"data parallel with 2 workers over sequential, batch of {LARGE_BATCH} or more", 1.7, _data_parallel),
)
