"""What each figure of notebook 08 shows, in a sentence or two computed from its records, and the answer to its title.

Modelled numbers say so, and have no interval of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.figures.style import label
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import (
    Finding,
    counted,
    estimate_in,
    finding,
    in_words,
    interval_text,
    listed,
    noise_unknown,
    pays,
    sentence,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e08_convlstm_scaling.drawings import network_title
from lockstep.experiments.e08_convlstm_scaling.findings_of_clusters import (
    cluster,
    link_error,
    model,
    more_nodes,
    the_network,
)
from lockstep.experiments.e08_convlstm_scaling.flops import EXPERIMENT as FLOPS
from lockstep.experiments.e08_convlstm_scaling.flops import beside_table2, counted_table, table4
from lockstep.experiments.e08_convlstm_scaling.forecasts import cluster_forecast
from lockstep.experiments.e08_convlstm_scaling.table3 import (
    FIVE_NODES,
    modelled_times,
    published_times,
    speedup_on_five_nodes,
    table3,
)
from lockstep.experiments.e08_convlstm_scaling.tables import (
    accuracy_by_workers,
    exascale_table,
    strong_scaling,
    weak_scaling,
)

ENGINES, SERVER = "engines_shared_memory", "parameter_server"
"""What keeps the gradients of one machine's workers in common memory, and the paper's way."""


@finding
def scaling(stored: Stored) -> str:
    """Where a gain over one worker is shown; then the slowest and the fastest of the workers that fill the machine's
    cores, with one batch, with a batch each and as stages of a pipeline, and of more workers than cores."""
    strong = strong_scaling(stored)
    kinds = {"with one batch split up": _a_core_each(_several(strong))}
    kinds |= {"with a batch each": _a_core_each(_several(weak_scaling(stored)))}
    kinds |= {"as stages of a pipeline": _a_core_each(_several(strong, staged=True))}
    kinds |= _more_than_cores(_several(strong))
    known = {how: rows[rows["low"].notna()] if len(rows) else rows for how, rows in kinds.items()}
    noise, (split, each, staged, *_) = aa_noise(stored.records), known.values()
    alone = [rows[~rows["time_shared"].astype(bool)] if len(rows) else rows for rows in (split, each)]
    shown = [*_shown(alone, noise, "data"), *_shown((staged,), noise, "layers")]
    told = [f"with a core for each worker, a gain over one is shown in {listed(shown)}"] if shown else []
    if ends := [_slowest_and_fastest(rows, how) for how, rows in known.items() if len(rows)]:
        told += [*noise_unknown(noise), f"the slowest and the fastest, in multiples of one's speed: {'; '.join(ends)}"]
    told += [f"{how}, no speedup has an interval yet" for how, rows in known.items() if rows.empty]
    return " ".join(sentence(text) for text in told)


def _several(table: pd.DataFrame, staged: bool = False) -> pd.DataFrame:
    """Rows of several workers with a speedup: those that share the data, or the layers."""
    if table.empty:
        return table
    kept = (table["variant"] == "a") & ((table["model_parallel"] != "none") == staged) & (table["workers"] > 1)
    return table[kept & table["speedup"].notna()]


def _a_core_each(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the workers that fill the machine's cores, the largest batch. A server's rank takes turns beside them."""
    own = rows[rows["workers"] == rows["cores"].max()] if len(rows) else rows
    return own[own["global_batch_size"] == own["global_batch_size"].max()] if len(own) else own


def _more_than_cores(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The most workers that take turns on cores, by a name that says on how many; nothing where there are none."""
    more = rows[rows["workers"] > rows["cores"]] if len(rows) else rows
    if more.empty:
        return {}
    return {f"on {counted(int(more['cores'].max()), 'core')}": more[more["workers"] == more["workers"].max()]}


def _shown(tables: Iterable[pd.DataFrame], noise: float, what: str) -> list[str]:
    """In how many cells a gain is shown, if there are any: all ten cells that split the data."""
    gains = [pays(estimate_in(row, "speedup"), noise) > 0 for own in tables for row in own.to_dict("records")]
    part = "all" if all(gains) else f"{in_words(sum(gains))} of the" if any(gains) else "none of the"
    many = f"{part} {counted(len(gains), 'cell')}"
    return [f"{many} that split the {what}"] if gains else []


def _slowest_and_fastest(rows: pd.DataFrame, how: str) -> str:
    """Two workers with a batch each, 1.8 [1.66, 1.95] (CNN, all-reduce) to 1.89 [1.74, 2.05] (ConvLSTM, all-reduce)"""
    ends = rows.loc[list(dict.fromkeys((rows["speedup"].idxmin(), rows["speedup"].idxmax())))]
    return f"{counted(int(rows['workers'].iloc[0]), 'worker')} {how}, {' to '.join(_gains(ends, named=True))}"


def _trained(rows: pd.DataFrame) -> str:
    """Two workers train the CNN 1.92 [1.87, 1.97] (all-reduce) times as fast as one; the ConvLSTM ..."""
    gains = [f"{the_network(name)} {listed(_gains(own))} times" for name, own in rows.groupby("network", sort=False)]
    gains[0] += " as fast as one"
    return f"{counted(int(rows['workers'].iloc[0]), 'worker')} train {'; '.join(gains)}"


def _gains(rows: pd.DataFrame, named: bool = False) -> list[str]:
    """Speedups with their intervals and ways; `named`: and networks."""
    shares = ", sharing cores"
    ways = [
        f"{network_title(row['network'])}, " * named
        + label(row["strategy"])
        + shares * bool(row["time_shared"] and row["workers"] <= row["cores"])
        for row in rows.to_dict("records")
    ]
    return [
        f"{gain.value:.3g} {interval_text(gain)}{sessions_in(row, 'speedup')} ({way})"
        for row, way in zip(rows.to_dict("records"), ways, strict=True)
        for gain in (estimate_in(row, "speedup"),)
    ]


@finding
def times_of_table3(stored: Stored) -> str:
    """What Table 3 gains from its fewest to its most nodes, against its workers and the cost model."""
    table = published_times(table3())
    first, last = table.iloc[0], table.iloc[-1]
    over = int((table["over_ideal"] > 1).sum())
    told = sentence(
        f"from {first['nodes']:.0f} to {last['nodes']:.0f} nodes by the published times training is "
        f"{last['published_times']:.3g} times as fast, with {last['workers_times']:.3g} times the workers; {over} of "
        f"{len(table) - 1} rows gain more over the row before than their additional workers could without any exchange"
    )
    modelled = modelled_times(cluster_forecast(stored), [int(last["nodes"]), FIVE_NODES], FIVE_NODES)
    own = modelled[modelled["nodes"] == last["nodes"]] if len(modelled) else modelled
    if own.empty:
        return f"{told} The cost model was not calibrated for it: too few cells."
    expected = listed(f"{row.modelled_times:.2g} times ({the_network(row.network)})" for row in own.itertuples())
    how = f"over the assumed link and by parameter server the cost model expects {expected}"
    return f"{told} {sentence('; '.join(filter(None, (how, link_error(stored, SERVER)))))}"


@finding
def accuracy(stored: Stored) -> str:
    """Test accuracy by the number of workers, and its points over one worker's of the same seed and batch."""
    table = accuracy_by_workers(stored)
    known = table[table["accuracy"].notna()] if len(table) else table
    if known.empty:
        raise NotNow("", "no network was trained to its end")
    told, batch = [], known["global_batch_size"].min()
    for row in known[known["global_batch_size"] == batch].assign(rounds=known["seeds"]).to_dict("records"):
        reached = estimate_in(row, "accuracy", "accuracy_low", "accuracy_high")
        told.append(f"{reached.value:.3g} % with {counted(int(row['workers']), 'worker')} {interval_text(reached)}")
    compared = known[(known["workers"] > 1) & known["points_low"].notna()]
    if compared.empty:
        why = f"fewer than {counted(MIN_ROUNDS, 'seed')} trained with one worker and with several"
        return sentence(f"test accuracy is {listed(told)}; whether workers change it is not known yet, for {why}")
    points = [
        f"{row['points']:+.2g} points with {counted(int(row['workers']), 'worker')} at a batch of "
        f"{row['global_batch_size']} [{row['points_low']:.2g}, {row['points_high']:.2g}]"
        for row in compared.to_dict("records")
    ]
    differ = ((compared["points_low"] > 0) | (compared["points_high"] < 0)).any()
    judged = "some differ from one worker" if differ else "none can be told apart from one worker"
    return sentence(f"test accuracy is {listed(told)}; {judged}: {listed(points)}")


@finding
def flops(stored: Stored) -> str:
    """Table 4 beside the operations that Table 2's layers do, and what equation (1) leaves out."""
    table = beside_table2(table4())
    most = table.loc[table["times"].idxmax()]
    told = sentence(
        f"for {most['layer']}, Table 4 prints {most['published_flops']:.3g} FLOP and Table 2's layer computes "
        f"{most['table2_computed_flops']:.3g} for an image, a factor of {most['times']:.2g}"
    )
    counts = counted_table(stored.table(FLOPS))
    if counts.empty:
        return f"{told} Torch has not counted these layers yet."
    own = counts[counts["network"] == counts["network"].iloc[0]]
    short = own[own["equation_over_counted"] < 1]
    if short.empty:
        return f"{told} Equations (1) and (2) give what torch counts."
    missed = listed(f"1/{1 / row.equation_over_counted:.0f} of {row.name_}" for row in
                    short.rename(columns={"name": "name_"}).itertuples())  # fmt: skip
    return f"{told} {sentence(f'equation (1), which leaves out the input channels, gives {missed} as torch counts it')}"


@finding
def answer(stored: Stored) -> str:
    """What this machine's workers gain, what the cost model expects of more nodes, whether the published speedup is
    possible, and how many cores exascale would take."""
    rows = _a_core_each(_several(strong_scaling(stored)))
    known = rows[rows["strategy"].isin((ENGINES, SERVER)) & rows["low"].notna()] if len(rows) else rows
    if known.empty:
        raise NotNow("", f"no speedup with a core for each worker has {counted(MIN_ROUNDS, 'round')} yet")
    batch = int(known["global_batch_size"].max())
    told = [sentence(f"with a batch of {batch} split between them, {_trained(known)}"), more_nodes(stored)]
    published = speedup_on_five_nodes()
    if published > FIVE_NODES:
        beyond = f"more than the ideal {FIVE_NODES}, so no link explains it"
        told.append(f"The published {published:g} on {FIVE_NODES} nodes is {beyond}.")
    exa = exascale_table(on_one_processor(stored)[0])
    if len(exa):
        found = exa.itertuples()
        cores = [f"{row.cores_needed / 1e6:.2g} million cores for {the_network(row.network)}" for row in found]
        rate = "At the rate of a core here, exascale (1e18 FLOP per second)"
        told.append(f"{rate} would take {listed(cores)}, even if they never communicated.")
    return " ".join(told)


FINDINGS: Mapping[str, Finding] = {
    "scaling": scaling,
    "cluster": cluster,
    "model": model,
    "table3": times_of_table3,
    "accuracy": accuracy,
    "flops": flops,
}
