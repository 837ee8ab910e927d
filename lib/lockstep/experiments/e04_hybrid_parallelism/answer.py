"""The answer to notebook 04's title: what the two combinations of data and model parallelism gain, and what is open."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.noise import NOISE_OF_A_QUOTIENT, aa_noise
from lockstep.analysis.sentences import (
    counted,
    estimate_in,
    finding,
    interval_text,
    network_name,
    pays,
    sentence,
    times,
)
from lockstep.analysis.statistics import is_difference
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import cores_of_machine, sessions_in
from lockstep.analysis.verdicts import NotNow
from lockstep.engine.units import bits_text
from lockstep.experiments.e04_hybrid_parallelism.findings import is_hybrid, leads, ratio_off, ways
from lockstep.experiments.e04_hybrid_parallelism.grid import ONE_PROCESS

HEAD = "head_parallel"
"""The strategy whose convolutions are data parallel and whose fully connected layers are model parallel."""
DATA = ("processes", "processes_allreduce")


@finding
def answer(stored: Stored) -> str:
    """What a model parallel head gains, what replicas of pipelines gain, and when the model expects them to lead."""
    records, noise = stored.records, aa_noise(stored.records)
    rows, told = ways(records), []
    known = rows[rows["low"].notna()].sort_values("workers", kind="stable")
    cores = cores_of_machine(records[records["status"] == "ok"])
    for use_case, own in known.groupby("use_case", sort=False):
        network = network_name(str(use_case))
        told += [*(_head(own, noise, network) or _unsplit(own, network)), *_replicas(own, noise, network, cores)]
    if not told:
        raise NotNow("", f"no combination of both has {counted(MIN_ROUNDS, 'round')} beside one core")
    return " ".join([*told, *_expected(stored)])


def _head(known: pd.DataFrame, noise: float, network: str) -> list[str]:
    """The model parallel head on the fewest ranks over one core, beside one process that uses as many cores, and over
    the best data parallel way on as many ranks."""
    own = known[known["strategy"] == HEAD]
    if own.empty:
        return []
    row = own.iloc[0].to_dict()
    gain, ranks = estimate_in(row, "speedup"), counted(int(row["workers"]), "rank")
    told = f"with the convolutions data parallel and the fully connected layers split over {ranks}, {network} "
    told += f"({int(row['global_batch_size'])} images per step) trains {times(gain, 'as fast as on one core')}"
    told += sessions_in(row, "speedup")
    for one in known[known["strategy"] == ONE_PROCESS].to_dict("records"):
        unsplit = estimate_in(one, "speedup")
        told += f", and without any split, by {one['called']}, {unsplit.value:.3g} times {interval_text(unsplit)}"
        told += sessions_in(one, "speedup")
    rivals = known[known["strategy"].isin(DATA) & (known["workers"] == row["workers"])]
    if rivals.empty:
        return [sentence(f"{told}; pure data parallelism has too few rounds beside it")]
    rival = rivals.loc[rivals["speedup"].idxmax()].to_dict()
    best = estimate_in(rival, "speedup")
    alone = f"pure data parallelism gives {best.value:.3g} times {interval_text(best)}"
    over = gain.over(best)
    if not is_difference(over, noise * NOISE_OF_A_QUOTIENT):
        return [sentence(f"{told}; {alone}, too close to the split's to tell which is faster")]
    word = "pays" if over.value > 1 else "does not pay"
    return [sentence(f"{told}; {alone}, so the split {word}: it is {times(over, 'as fast')}")]


def _replicas(known: pd.DataFrame, noise: float, network: str, cores: float) -> list[str]:
    """Replicas of a pipeline over one core, and over the best single way on as many ranks."""
    own = known[is_hybrid(known)]
    if own.empty:
        return []
    row = own.iloc[0].to_dict()
    gain, ranks = estimate_in(row, "speedup"), counted(int(row["workers"]), "rank")
    shared = f" sharing {counted(int(cores), 'core')}" if row["workers"] > cores else ""
    judged = {1: "so they gain something", -1: "so they do not pay", 0: "which leaves open whether they gain anything"}
    told = f"{row['called']}, {ranks}{shared}, train {network} {times(gain, 'as fast as one core')}"
    told += f"{sessions_in(row, 'speedup')}, {judged[pays(gain, noise)]}{' there' if shared else ''}"
    rivals = known[~is_hybrid(known) & (known["workers"] == row["workers"]) & (known["strategy"] != HEAD)]
    if rivals.empty:
        return [sentence(f"{told}; against one kind of parallelism on as many ranks they have too few rounds")]
    rival = rivals.loc[rivals["speedup"].idxmax()].to_dict()
    over = gain.over(estimate_in(rival, "speedup"))
    if is_difference(over, noise * NOISE_OF_A_QUOTIENT):
        word = "faster" if over.value > 1 else "slower"
        return [sentence(f"{told}; they are {word} than {rival['called']} ({times(over, 'as fast')})")]
    if over.open:  # too few rounds to compare them
        return [sentence(told)]
    beside = f"they are {over.value:.3g} times as fast as {rival['called']}"
    return [sentence(f"{told}; {beside} {interval_text(over)}, so neither can be called faster")]


def _unsplit(known: pd.DataFrame, network: str) -> list[str]:
    """What the cores of the fewest ranks give without any parallelism between workers, where that was measured."""
    own = known[known["strategy"] == ONE_PROCESS]
    if own.empty:
        return []
    row = own.iloc[0].to_dict()
    gain = times(estimate_in(row, "speedup"), "as fast as on one core")
    return [sentence(f"without any split, {row['called']} train {network} {gain}{sessions_in(row, 'speedup')}")]


def _expected(stored: Stored) -> list[str]:
    """Where a cost model expects replicas of pipelines to lead most, with a core for each rank."""
    try:
        table = leads(stored)
    except NotNow as error:
        return [sentence(f"with a core for each rank nothing was measured, and nothing can be predicted: {error}")]
    off = ratio_off(stored)
    model = "with a core for each rank, a cost model expects replicas of pipelines"
    row = table.loc[table["gain"].idxmax()]
    if row["gain"] <= 1:
        return [sentence(f"{model} never to be fastest")]
    where = f"for {network_name(row['use_case'])} on {row['ranks']} ranks at {bits_text(row['gain_at'])}"
    most, where = f"by {row['gain']:.3g} times at the most", f", {where}"
    if off is None:
        return [sentence(f"{model} to lead {most}{where}")]
    too_large = f"its leads may be {off:.2f} times too large"
    if row["gain"] <= off:
        return [sentence(f"{model} to lead nowhere by more than its own error ({most}; {too_large})")]
    return [sentence(f"{model} to lead {most}{where}; {too_large}")]
