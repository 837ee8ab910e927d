"""What each figure of notebook 11 shows, in a sentence or two computed from its records: of time alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import wraps

import pandas as pd

from lockstep.analysis.sentences import Finding, counted, finding, listed, measure_of, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation import learning_findings
from lockstep.experiments.e11_straggler_mitigation.advice import advice
from lockstep.experiments.e11_straggler_mitigation.answer import (
    CALLED,
    plainly,
    reached,
    reading_name,
    saved,
    saved_by_readings,
)
from lockstep.experiments.e11_straggler_mitigation.bounds import (
    PUBLISHED,
    capacity_bound,
    fewest_workers,
    whole_images_bound,
)
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DPRO_DETECTED,
    DPRO_GRADIENT,
    DPRO_READINGS,
    OURS,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    BOUND,
    cost_without_delays,
    mitigation_table,
    rate_kept,
    scale_table,
    stage_table,
)
from lockstep.experiments.e11_straggler_mitigation.prices import node_price, nodes_over_dpro_sm, table2
from lockstep.experiments.e11_straggler_mitigation.rows import estimate_in, required
from lockstep.experiments.e11_straggler_mitigation.twins_drawings import simulator_finding


@finding
def mitigation(stored: Stored) -> str:
    """The most that a reading of DPro-SM saves, where 98 % is reached at all, and how much no policy can exceed."""
    table = required(mitigation_table(stored), "policies' throughput").dropna(subset="mitigation")
    said, own = [], table[table["contender"].isin(DPRO_READINGS)]
    if len(own):
        best = own.loc[own["mitigation"].idxmax()]
        if (found := estimate_in(best, "mitigation")) is not None:
            most = f"{measure_of(found.times(100), '%')} ({reading_name(best['contender'])}, under {best['kind']})"
            said.append(sentence(f"the most that a reading of DPro-SM saves is {most}"))
    sure, may = reached(stored)
    held = [f"one reaches 98 % under {listed(sure)}"] if sure else ["none is shown to reach 98 %"]
    held += [f"open under {listed(may)}"] if may else []
    said.append(sentence(f"of the readings {', '.join(held)}"))
    policies = table[(table["mitigation_low"] >= PUBLISHED) & (table["contender"] != BOUND)]
    anywhere = listed(dict.fromkeys(policies["kind"]))
    some = f"of all policies, at least one reaches it under {anywhere}"
    said.append(sentence(some if anywhere else "no policy is shown to reach it under any kind of delays"))
    bound = table[table["contender"] == BOUND].set_index("kind")["mitigation"]
    if len(bound):
        least, most = (f"{100 * bound[kind]:.0f} % under {kind}" for kind in (bound.idxmin(), bound.idxmax()))
        free = " (over 100 %: the bound's messages and updates are free)" if bound.max() > 1 else ""
        said.append(sentence(f"if nobody waited, {least} to {most} could be saved{free}"))
    called = {OURS: "our deadline", WAIT: "waiting for all", BOUND: "if nobody waited"}
    kept = {name: rate_kept(stored, contender) for contender, name in called.items()}
    parts = [f"{name} {100 * found.value:.0f} %" for name, found in kept.items() if found is not None]
    said += [sentence(f"of the images per second without delays there remain: {', '.join(parts)}")] if parts else []
    return " ".join(said)


@finding
def bounds(stored: Stored) -> str:
    """From how many workers and images on 98 % is possible."""
    del stored
    known = [f"{100 * capacity_bound(workers, 2):.3g} % with {workers}" for workers in (4, 8)]
    fewest = [fewest_workers(PUBLISHED, slower) for slower in (2, 3)]
    capacity = (
        f"where one worker is twice as slow, at most {listed(known)} workers can be mitigated; 98 % takes {fewest[0]} "
        f"of them, or {fewest[1]} where it is three times slower"
    )
    images = f"with shares of 8 images on 8 workers, whole images leave {100 * whole_images_bound(8, 8, 2):.3g} %"
    return f"{sentence(capacity)} {sentence(images)}"


@finding
def stages(stored: Stored) -> str:
    """The time of waiting for all, and of a made-up gradient that comes once a straggler is detected or forecast."""
    table, said = required(stage_table(stored), "delays that last"), []
    quicker = []
    shown = {WAIT: "waiting for all takes", DPRO_DETECTED: "a gradient made up on detection",
             DPRO_GRADIENT: "one made up on a forecast"}  # fmt: skip
    for kind, own in table.groupby("kind", sort=False):
        rows = own.drop_duplicates("contender").set_index("contender", drop=False)
        known = {name: estimate_in(rows.loc[name], "times_undelayed") for name in shown if name in rows.index}
        parts = [f"{shown[name]} {found}" for name, found in known.items() if found is not None]
        said += [f"under {kind}, {listed(parts)}"] if parts else []
        late, early = (known.get(name) for name in (DPRO_DETECTED, DPRO_GRADIENT))
        quicker += [kind] if late and early and early.high < late.low else []
    if not said:
        return "No stage has an interval yet."
    who = "making up a gradient on a forecast is clearly faster than once a straggler is detected"
    first = f"{who} under {listed(map(str, quicker)) or 'no kind'}"
    return " ".join(sentence(text) for text in (first, f"in times of no delays: {'; '.join(said)}"))


@finding
def scale(stored: Stored) -> str:
    """What waiting for all costs with the fewest and the most workers, and the best of the others with the most."""
    table, said = required(scale_table(stored), "numbers of workers"), []
    for kind, own in table.groupby("kind", sort=False):
        most = own[own["workers"] == own["workers"].max()]
        counts = dict.fromkeys((own["workers"].min(), own["workers"].max()))
        parts = [text for count in counts if (text := _waiting(own, count))]
        if parts:
            said.append(f"under {kind}, {' and '.join(parts)}{_best_of(most)}")
    of_time = "in times of no delays, waiting for all takes"
    return sentence(f"{of_time}: {'; '.join(said)}") if said else "No number of workers has an interval yet."


def _waiting(own: pd.DataFrame, workers: int) -> str:
    rows = own[(own["workers"] == workers) & (own["contender"] == WAIT)]
    found = estimate_in(rows.iloc[0], "times_undelayed") if len(rows) else None
    return f"{found} with {workers} workers" if found else ""


def _best_of(most: pd.DataFrame) -> str:
    others = most[most["contender"] != WAIT].dropna(subset="times_undelayed")
    if others.empty:
        return ""
    best = others.loc[others["times_undelayed"].idxmin()]
    found = estimate_in(best, "times_undelayed")
    return f" ({best['contender']}: {found})" if found else ""


@finding
def costs(stored: Stored) -> str:
    """Who saves most, and what DPro-SM's readings do; DPro-SM's cost, and the row of Table 2 whose cost over it is the
    furthest from the counted one."""
    table = required(table2(stored), "policies' throughput").dropna(subset="over_dpro_sm")
    if table.empty:
        raise NotNow("", "the policies of Table 2 were not all simulated")
    ours, (number, readings, _) = table.iloc[-1], saved_by_readings(stored)
    best, share = next(iter(saved(stored, CONTENDERS).items()))
    text = f"the {counted(number, 'reading')} of DPro-SM's text save{'s' * (number == 1)} {readings}"
    most = f"{CALLED.get(best, best)} saves the most of the delay, {share}; {text}"
    own = (
        f"at an assumed {node_price(stored):g} USD per node and hour, DPro-SM's {ours['nodes']:.3g} nodes cost "
        f"{ours['usd_per_hour']:.3g} USD per hour; the paper prints {ours['published_usd_per_hour']:g} USD"
    )
    off = (table["published_over_dpro_sm"] / table["over_dpro_sm"]).map(math.log).abs()
    furthest = table.loc[off.idxmax()]
    ratio = nodes_over_dpro_sm(stored, furthest["contender"])
    assert ratio is not None, "both have nodes, or the row had no ratio"
    over = (
        f"{furthest['contender']} costs {times(ratio, 'as much')}, whatever a node's price; printed is a ratio of "
        f"{furthest['published_over_dpro_sm']:.2f}"
    )
    said = [most, own, over]
    if (slower := cost_without_delays(stored, OURS)) is not None:
        said.append(f"where nothing is delayed, the deadline takes {slower} times the time per image that waiting does")
    return " ".join(sentence(text) for text in said)


def _plain(say: Finding) -> Finding:
    @wraps(say)
    def said(stored: Stored) -> str:
        return plainly(say(stored))

    return said


_SAID: Mapping[str, Finding] = {
    "mitigation": mitigation,
    "bounds": bounds,
    "stages": stages,
    "advice": advice,
    "slow_nodes": learning_findings.slow_nodes,
    "paper_network": learning_findings.paper_network,
    "time_to_loss": learning_findings.time_to_loss,
    "rivals": learning_findings.rivals,
    "scale": scale,
    "costs": costs,
    "stand_ins": learning_findings.stand_ins,
    "partitions": learning_findings.partitions,
    "simulator": simulator_finding,
}
FINDINGS: Mapping[str, Finding] = {name: _plain(say) for name, say in _SAID.items()}
