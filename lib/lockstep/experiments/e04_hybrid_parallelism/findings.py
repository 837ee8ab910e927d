"""What each figure of notebook 04 shows, in a sentence or two computed from its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import (
    Finding,
    counted,
    estimate_in,
    finding,
    in_words,
    interval_text,
    listed,
    network_name,
    noise_unknown,
    predicted_steps,
    resources_used,
    sentence,
    times,
    way_name,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import cores_of_machine, sessions_in, trace_table
from lockstep.analysis.verdicts import NotNow
from lockstep.engine.units import bits_text
from lockstep.experiments.e04_hybrid_parallelism.grid import ONE_PROCESS
from lockstep.experiments.e04_hybrid_parallelism.tables import (
    costs_of,
    hybrid_wins_table,
    layer_times,
    layout_names,
    map_of,
)
from lockstep.predict.layer_costs import WITHIN
from lockstep.predict.pipeline_speedups import pipeline_speedup_table

EXPERIMENT = "hybrid"


def ways(records: pd.DataFrame) -> pd.DataFrame:
    """The CPU's rows with a speedup over one core, without that core and the second of an A/A pair; `called` names
    them in a sentence. Raises NotNow for none."""
    table = pipeline_speedup_table(records, EXPERIMENT)
    if len(table):
        kept = (table["device"] == "cpu") & (table["variant"] == "a") & (table["strategy"] != "sequential")
        table = table[kept & table["speedup"].notna()]
    if table.empty:
        raise NotNow("", "no way to spend ranks was measured beside one core")
    return table.assign(called=[_way(row) for row in table.to_dict("records")])


def is_hybrid(rows: pd.DataFrame) -> pd.Series:
    """Which rows are several replicas of a model in stages."""
    return (rows["replicas"] > 1) & (rows["pipeline_ranks"] > 1)


def _way(row: Mapping[str, Any]) -> str:
    if row["strategy"] == ONE_PROCESS:
        return f"{counted(int(row['threads_per_worker']), 'thread')} inside operators of one process"
    if row["replicas"] > 1 and row["pipeline_ranks"] > 1:
        replicas, stages = int(row["replicas"]), int(row["pipeline_ranks"])
        return f"{counted(replicas, 'replica')} of {counted(stages, 'stage')}"
    return f"{way_name(row['strategy'])} on {counted(int(row['workers']), 'rank')}"


@finding
def speedup(stored: Stored) -> str:
    """Every way over one core: first what has an interval, then what has none yet."""
    records = stored.records
    rows, told = ways(records).sort_values("speedup", ascending=False), []
    for use_case, own in rows.groupby("use_case", sort=False):
        network = network_name(str(use_case))
        known, thin = own[own["low"].notna()], own[own["low"].isna()]
        if len(known):
            gains = "; ".join(f"{_gain(row)} with {row['called']}" for row in known.to_dict("records"))
            batch = f"{network} ({int(known['global_batch_size'].max())} images per step)"
            told.append(sentence(f"{batch} trains at these multiples of one core's speed: {gains}"))
        if len(thin):
            few = listed(f"{row['called']} ({row['speedup']:.3g})" for row in thin.to_dict("records"))
            told.append(f"Too few rounds for an interval ({network}): {few}.")
    cores = cores_of_machine(records[records["status"] == "ok"])
    crowded = sorted({int(count) for count in rows.loc[rows["workers"] > cores, "workers"]})
    told += [sentence(f"{counted(count, 'rank')} share {counted(int(cores), 'core')} here") for count in crowded]
    rest = sorted(set(records.loc[records["experiment"] == EXPERIMENT, "use_case"]) - set(rows["use_case"]))
    told += [sentence(f"{listed(map(network_name, rest))} was not measured on these cores")] if rest else []
    if not (rows["strategy"] == ONE_PROCESS).any():
        one = "One process whose operators use the cores of the fewest ranks"
        told.append(f"{one} was not measured; `lockstep run 04` adds it.")
    return " ".join([*told, *noise_unknown(aa_noise(records))])


def _gain(row: Mapping[str, Any]) -> str:
    return f"{row['speedup']:.3g} {interval_text(estimate_in(row, 'speedup'))}{sessions_in(row, 'speedup')}"


@finding
def predicted(stored: Stored) -> str:
    """How many steps the cost model predicts, and the worst prediction."""
    table = costs_of(stored)
    return predicted_steps(table, layout_names(table), WITHIN)


@finding
def hybrid_map(stored: Stored) -> str:
    """At which link rates the hybrid is predicted to lead, and how far the model is off on measured steps."""
    table = leads(stored)
    told: list[str] = []
    for use_case, rows in table.groupby("use_case", sort=False):
        found = listed(_lead(row, stored) for row in rows.to_dict("records"))
        whose = f"{'that' if told else 'by the cost model, the hybrid'} of {network_name(str(use_case))}"
        told.append(sentence(f"{whose} leads {found}"))
    worst = _worst(stored)
    if worst is not None:
        off = f"up to {farthest_off(stored):.3g} times off on measured steps ({times(worst, 'the measured step')})"
        if (both := ratio_off(stored)) is not None:
            off += f", and by measured steps of both ways, a hybrid's lead may be {both:.2f} times too large"
        told.append(f"The same model is {off}.")
    told += _undivided(stored)
    rest = sorted(set(stored.table("layers")["use_case"]) - set(table["use_case"]))
    told += [sentence(f"too little of {listed(map(network_name, rest))} was measured to predict it")] if rest else []
    return " ".join(told)


def _undivided(stored: Stored) -> list[str]:
    """Which panels of the map have no line of model parallelism, and why: a stage is at least a layer."""
    told, table = [], map_of(stored)
    for use_case, own in table.groupby("use_case", sort=False):
        lacking = sorted(set(own["ranks"]) - set(own.loc[own["kind"] == "model", "ranks"]))
        if lacking:
            layers = counted(len(layer_times(stored.table("layers"), str(use_case))), "layer")
            stages = listed(in_words(int(ranks)) for ranks in lacking)
            few = f"{network_name(str(use_case))}'s {layers} with parameters cannot be cut into {stages} stages"
            told.append(sentence(f"{few}: model parallelism has no line there"))
    return told


def leads(stored: Stored) -> pd.DataFrame:
    """`hybrid_wins_table` where it holds a gain. Raises NotNow for none."""
    table = hybrid_wins_table(map_of(stored))
    known = table[table["gain"].notna()] if "gain" in table else pd.DataFrame()
    if known.empty:
        raise NotNow("", "layers, link and one core's step were not all measured")
    return known


def farthest_off(stored: Stored) -> float | None:
    """How many times too long or too short the worst prediction of a measured step is; None where there is none."""
    return None if (worst := _worst(stored)) is None else max(worst.value, 1 / worst.value)


def _worst(stored: Stored) -> Estimate | None:
    """The worst prediction of a measured step over that step, paired by round; None where none was predicted."""
    table = costs_of(stored)
    known = table[(table["variant"] == "a") & table["ratio"].notna()] if len(table) else table
    return estimate_in(known.loc[np.log(known["ratio"]).abs().idxmax()].to_dict(), "ratio") if len(known) else None


def ratio_off(stored: Stored) -> float | None:
    """How many times too large the model's lead of a hybrid over another way may be, by the measured steps of both: the
    hybrids' are predicted too short, the others' too long. None where one of them was not predicted."""
    table = costs_of(stored)
    known = table[(table["variant"] == "a") & table["ratio"].notna()] if len(table) else table
    if not len(known):
        return None
    both = known["way"] == "hybrid"
    ours, others = known.loc[both, "ratio"], known.loc[~both, "ratio"]
    return float(max(1.0, others.max() / ours.min())) if len(ours) and len(others) else None


def _lead(row: Mapping[str, Any], stored: Stored) -> str:
    ranks, off = counted(int(row["ranks"]), "rank"), ratio_off(stored)
    if pd.isna(row["hybrid_from"]):
        return f"nowhere with {ranks}"
    if off is not None and row["gain"] <= off:
        return f"nowhere by more than its error with {ranks} (at most {row['gain']:.2f} times)"
    low, high = (bits_text(row[name]) for name in ("hybrid_from", "hybrid_to"))
    where = f"at {low}" if low == high else f"from {low} to {high}"
    return f"{where} with {ranks} (by {row['gain']:.3g} times at the most, at {bits_text(row['gain_at'])})"


@finding
def resources(stored: Stored) -> str:
    """CPU, memory and threads of the ranks of the traced hybrid."""
    traced = stored.table("resources")
    return resources_used(trace_table(traced[traced["experiment"] == EXPERIMENT]) if len(traced) else traced)


FINDINGS: Mapping[str, Finding] = {
    "speedup": speedup,
    "predicted": predicted,
    "map": hybrid_map,
    "resources": resources,
}
