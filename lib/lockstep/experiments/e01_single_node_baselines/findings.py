"""What each figure of notebook 01 shows, and the answer to its title, computed from its records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import undisturbed_by_speed
from lockstep.analysis.sentences import (
    Finding,
    as_share,
    briefly,
    counted,
    finding,
    listed,
    measure_of,
    network_name,
    require_rounds,
    sentence,
    settle_each,
    times,
)
from lockstep.analysis.statistics import (
    BASELINE,
    Conditions,
    interval_of,
    per_round,
    ratio_or_reason,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import trace_table
from lockstep.analysis.verdicts import NotNow, cores_given
from lockstep.experiments.e01_single_node_baselines.findings_roofs import profiled, roofline
from lockstep.experiments.e01_single_node_baselines.grid import EXPERIMENT
from lockstep.experiments.e01_single_node_baselines.tables import PARTS, drawn_ladder, ladder_table

SPEED = "images_per_second"
_PARTS = dict(zip(PARTS, ("the input", "the forward pass", "the backward pass", "the optimizer's update"), strict=True))


def _use_cases(stored: Stored) -> list[str]:
    """Those that were measured, the one with the large data set first."""
    return sorted((str(name) for name in stored.of(EXPERIMENT)["use_case"].unique()), reverse=True)


def _cell(use_case: str, strategy: str) -> Conditions:
    return {"experiment": EXPERIMENT, "use_case": use_case, "strategy": strategy, "variant": "a", "device": "cpu"}


def _tops(stored: Stored, use_case: str) -> dict[str, Conditions]:
    """The highest rung of the ladder that ran in each precision. Raises NotNow where none did."""
    table = ladder_table(stored.records)
    own = table[(table["use_case"] == use_case) & (table["variant"] == "a") & (table["device"] == "cpu")]
    own = own[(own["status"] == "ok") & (own["strategy"] != BASELINE["strategy"])]
    found = {str(name): _cell(use_case, rows["strategy"].iloc[-1]) for name, rows in own.groupby("precision")}
    if not found:
        raise NotNow("", f"no rung above the baseline was measured with {use_case}")
    return dict(sorted(found.items(), reverse=True))


def _speedups(stored: Stored, use_case: str, short: bool = False) -> tuple[str, bool]:
    """The highest rungs over the baseline, all in one clause, and whether machines are told apart in it; `short`: of
    these the least and the most."""
    base = _cell(use_case, "sequential")
    parts: list[str] = []
    apart = False
    for precision, top in _tops(stored, use_case).items():
        ratio = ratio_with_interval(stored.records, top, base, SPEED)
        own = _by_machine(stored, top, base) if ratio.apart or precision == "bfloat16" else {}
        known = {machine: each for machine, each in own.items() if each is not None and not each.open}
        few = precision == "bfloat16" and bool(own) and not known
        if few:  # gains differ by processor, whether or not so few rounds show it
            known = {machine: each for machine, each in own.items() if each is not None}
        elif precision != "bfloat16" and len(known) < len(own):
            known = {}
        apart |= bool(known)
        if short and len(known) > 1:
            values = sorted(each.value for each in known.values())
            ends = " to ".join(dict.fromkeys(f"{value:.3g}" for value in (values[0], values[-1])))
            why = " (no intervals yet)" if few else ""
            parts.append(f"{ends} times in {precision}, by processor{why}")
            continue
        for machine, each in known.items() if known else [("", ratio)]:
            of = f"in {precision}" if parts else f"as fast as one thread on one core in {precision}"
            again = bool(parts) and machine != next(iter(known), machine)  # the precision stands before it
            parts.append(times(each, f"{'' if again else of}{machine}".strip()))
    return listed(parts), apart


def _by_machine(stored: Stored, above: Conditions, below: Conditions) -> dict[str, Estimate | None]:
    """The ratio on each kind of processor, None where no round holds both; empty where all are of one kind."""
    found: dict[str, Estimate | None] = {}
    kinds = undisturbed_by_speed(stored, select(stored.records, above))
    for name, own in kinds.items() if len(kinds) > 1 else ():
        found[f" on {name}"], _ = ratio_or_reason(own, above, below, SPEED)
    return found


@finding
def answer(stored: Stored) -> str:
    """Images per second of the highest rungs, and what that is over the baseline."""
    if not (use_cases := _use_cases(stored)):
        raise NotNow("", "no rung of the ladder was measured")
    return " ".join(settle_each(partial(_answer, stored), use_cases))


def _answer(stored: Stored, use_case: str) -> str:
    top = list(_tops(stored, use_case).values())[-1]
    cores = counted(cores_given(select(stored.records, top)), "core")
    rate, (speedups, apart) = interval_of(per_round(stored.records, top, SPEED)), _speedups(stored, use_case)
    makes = "" if apart else f", which makes {measure_of(rate, 'images per second')}"
    return sentence(f"one process on {cores} trains {network_name(use_case)} {speedups}{makes}")


@finding
def ladder(stored: Stored) -> str:
    """The highest rungs over the baseline, and which ingredients gain anything by themselves."""
    whole = "with all rungs one process trains"
    said = settle_each(
        lambda name: sentence(f"{whole} {network_name(name)} {_speedups(stored, name, short=True)[0]}"),
        _use_cases(stored),
    )
    if math.isinf(aa_noise(stored.records)):
        why = "no cell measured twice has enough rounds"
        return " ".join([*said, f"What one ingredient gains is not known yet: {why}."])
    table = drawn_ladder(stored)
    gained = table[table["difference"] & (table["variant"] == "a")]
    parts = [
        f"{row['label'].removeprefix('+ ')} ({network_name(row['use_case'])}, {row['gain']:.3g} "
        f"[{row['gain_low']:.3g}, {row['gain_high']:.3g}])"
        for row in gained.to_dict("records")
    ]
    alone = f"ingredients that change the speed by more than noise: {listed(parts)}"
    return " ".join([*said, sentence(alone if parts else "no single ingredient's gain can be told from noise")])


@finding
def steps(stored: Stored) -> str:
    """The largest part of a step and the update's, of the baseline and of the highest rung."""
    return " ".join(settle_each(partial(_steps, stored), _use_cases(stored)))


def _steps(stored: Stored, use_case: str) -> str:
    top = list(_tops(stored, use_case).values())[-1]
    parts = []
    for where, cell in (("on the baseline", _cell(use_case, "sequential")), ("on the highest rung", top)):
        step = per_round(stored.records, cell, "step_seconds")
        shares = {name: 100 * per_round(stored.records, cell, name) / step for name in PARTS}
        most = max(shares, key=lambda name: shares[name].median())
        known = {name: interval_of(shares[name].dropna()) for name in dict.fromkeys((most, "update_seconds"))}
        parts.append(listed(f"{_PARTS[name]} takes {_share(each)}" for name, each in known.items()))
        parts[-1] += f" {where}"
    return sentence(f"of a step of {network_name(use_case)}, {'; '.join(parts)}")


def _share(found: Estimate) -> str:
    """A share in percent, without what each session says by itself."""
    return briefly(measure_of(as_share(found), "%"))


@finding
def operators(stored: Stored) -> str:
    """The two kinds of operators that take most of each profiled pass, in the session that figure and table show."""
    one, session = profiled(stored)
    if (profiles := one.table("operators")).empty:
        raise NotNow("", "no operators were profiled in these records")
    said, few = list[str](), list[str]()
    for (use_case, strategy), own in profiles.groupby(["use_case", "strategy"], sort=False):
        most = own.groupby("operators")["share"].median().sort_values(ascending=False).index[:2]
        rows = {kind: own[own["operators"] == kind] for kind in most}
        found = {kind: interval_of(one.by_round(each, 100 * each["share"])) for kind, each in rows.items()}
        shares = [f"{kind} {_share(share)}" for kind, share in found.items()]
        rung = str(strategy).replace("_", " ")
        told = few if all(share.open for share in found.values()) else said
        told.append(f"of {network_name(str(use_case))} (rung {rung}), {listed(shares)}")
    others = ["of the others there are too few rounds"] if said and few else []
    on = f" on {session}" if session else ""
    return sentence(f"what takes most of a pass{on}: {'; '.join((said or few) + others)}")


@finding
def resources(stored: Stored) -> str:
    """How busy the traced rungs keep their cores."""
    table = trace_table(stored.table("resources"))
    said = []
    for (use_case, strategy), own in table.groupby(["use_case", "strategy"], sort=False) if len(table) else ():
        cores = cores_given(select(stored.records, _cell(str(use_case), str(strategy))))
        busy = interval_of((own["cpu_percent_mean"] / cores).dropna())
        rung = str(strategy).replace("_", " ")
        try:
            require_rounds(busy)
            kept = f"keeps {counted(cores, 'core')} {_share(busy)} busy"
        except NotNow:
            kept = f"kept {counted(cores, 'core')} {busy.value:.3g} % busy in {counted(len(own), 'trace')}"
        said.append(f"{network_name(str(use_case))} ({rung}) {kept}")
    return sentence("; ".join(said)) if said else "No resources were sampled in these records."


FINDINGS: Mapping[str, Finding] = {
    "ladder": ladder,
    "steps": steps,
    "roofline": roofline,
    "operators": operators,
    "resources": resources,
}
