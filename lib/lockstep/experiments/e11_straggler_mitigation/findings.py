"""What each figure of notebook 11 shows, in a sentence or two computed from its records: of time alone."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lockstep.analysis.sentences import Finding, finding, listed, measure_of, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation import learning_findings
from lockstep.experiments.e11_straggler_mitigation.bounds import (
    PUBLISHED,
    capacity_bound,
    fewest_workers,
    least_share,
    whole_images_bound,
)
from lockstep.experiments.e11_straggler_mitigation.contenders import DPRO_READINGS, WAIT
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    BOUND,
    STAGES,
    mean_mitigation,
    mitigation_table,
    scale_table,
    stage_table,
)
from lockstep.experiments.e11_straggler_mitigation.prices import node_price, table2
from lockstep.experiments.e11_straggler_mitigation.rows import estimate_in, required
from lockstep.experiments.e11_straggler_mitigation.twins_drawings import simulator_finding


@finding
def mitigation(stored: Stored) -> str:
    """Which reading of DPro-SM mitigates how much, where 98 % is reached at all, and how much no policy can exceed."""
    table = required(mitigation_table(stored), "policies' throughput")
    parts, said = [], []
    for reading in DPRO_READINGS:
        found = mean_mitigation(stored, reading)
        if found is not None and not found.open:
            parts.append(f"{reading}, {measure_of(found.times(100), '%')}")
    if parts:
        said.append(sentence(f"of what delays cost, on average over the kinds, these save: {'; '.join(parts)}"))
    reached = table[(table["mitigation"] >= PUBLISHED) & (table["contender"] != BOUND)]
    dpro = reached[reached["contender"].isin(DPRO_READINGS)]
    where, anywhere = (listed(dict.fromkeys(own["kind"])) or "no kind of delays" for own in (dpro, reached))
    said.append(sentence(f"98 % is reached by a reading of DPro-SM under {where}, and by any policy under {anywhere}"))
    bound = table[table["contender"] == BOUND].dropna(subset="mitigation").set_index("kind")["mitigation"]
    if len(bound):
        least, most = (f"{100 * bound[kind]:.0f} % under {kind}" for kind in (bound.idxmin(), bound.idxmax()))
        said.append(sentence(f"if nobody ever waited, {least} and {most} could be saved"))
    return " ".join(said)


@finding
def bounds(stored: Stored) -> str:
    """From how many workers and images on 98 % is possible."""
    del stored
    known = [f"{100 * capacity_bound(workers, 2):.3g} % with {workers}" for workers in (4, 8, 16, 32)]
    fewest = [fewest_workers(PUBLISHED, slower) for slower in (2, 3)]
    capacity = (
        f"with one worker twice as slow at most so much can be mitigated: {listed(known)} workers; 98 % takes "
        f"{fewest[0]} of them, or {fewest[1]} where it is three times slower"
    )
    images = (
        f"whole images allow less: of shares of 8 images on 8 workers some must grow to 9, which leaves "
        f"{100 * whole_images_bound(8, 8, 2):.3g} %; with 64 workers 98 % takes shares of "
        f"{least_share(PUBLISHED, 64, 2)}"
    )
    return f"{sentence(capacity)} {sentence(images)}"


@finding
def stages(stored: Stored) -> str:
    """How much the time of each of Figure 5's stages is, under each kind of delays."""
    table, said = required(stage_table(stored), "delays that last"), []
    for kind, own in table.groupby("kind", sort=False):
        parts = []
        for _, row in own[own["contender"].isin(list(STAGES))].iterrows():
            if (found := estimate_in(row, "times_undelayed")) is not None:
                parts.append(f"{row['stage'].replace(':', ',')}: {found}")
        said += [sentence(f"under {kind} the times over the undelayed one are: {'; '.join(parts)}")] if parts else []
    return " ".join(said) or "No stage has an interval yet."


@finding
def scale(stored: Stored) -> str:
    """What waiting for all costs with the fewest and the most workers, and the best of the others with the most."""
    table, said = required(scale_table(stored), "numbers of workers"), []
    for kind, own in table.groupby("kind", sort=False):
        most = own[own["workers"] == own["workers"].max()]
        parts = [text for count in (own["workers"].min(), own["workers"].max()) if (text := _waiting(own, count))]
        best = _best_of(most)
        if parts:
            said.append(sentence(f"under {kind} waiting for all takes {' and '.join(parts)}{best}"))
    return " ".join(said) or "No number of workers has an interval yet."


def _waiting(own: pd.DataFrame, workers: int) -> str:
    rows = own[(own["workers"] == workers) & (own["contender"] == WAIT)]
    found = estimate_in(rows.iloc[0], "times_undelayed") if len(rows) else None
    return f"{times(found, 'the undelayed time')} with {workers} workers" if found else ""


def _best_of(most: pd.DataFrame) -> str:
    others = most[most["contender"] != WAIT].dropna(subset="times_undelayed")
    if others.empty:
        return ""
    best = others.loc[others["times_undelayed"].idxmin()]
    found = estimate_in(best, "times_undelayed")
    return f", {best['contender']} then {times(found, 'it')}" if found else ""


@finding
def costs(stored: Stored) -> str:
    """Table 2's ratios beside the counted ones."""
    table = required(table2(stored), "policies' throughput").dropna(subset="over_dpro_sm")
    if table.empty:
        raise NotNow("", "the policies of Table 2 were not all simulated")
    parts = [
        f"{row['contender']} {row['over_dpro_sm']:.2f} (printed {row['published_over_dpro_sm']:.2f})"
        for _, row in table.iterrows()
    ]
    ours = table.iloc[-1]
    own = (
        f"at an assumed {node_price(stored):g} USD per node and hour, DPro-SM's {ours['nodes']:.3g} nodes cost "
        f"{ours['usd_per_hour']:.3g} USD per hour; printed are {ours['published_usd_per_hour']:g}"
    )
    over = f"over that, which needs no price: {listed(parts)}"
    return f"{sentence(own)} {sentence(over)}"


FINDINGS: Mapping[str, Finding] = {
    "mitigation": mitigation,
    "bounds": bounds,
    "stages": stages,
    "slow_nodes": learning_findings.slow_nodes,
    "time_to_loss": learning_findings.time_to_loss,
    "rivals": learning_findings.rivals,
    "scale": scale,
    "costs": costs,
    "stand_ins": learning_findings.stand_ins,
    "partitions": learning_findings.partitions,
    "simulator": simulator_finding,
}
