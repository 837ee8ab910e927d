"""Verdicts on what mitigation costs: Table 2's prices and memory, redundancy and speculation.

No price of a node and no number of nodes is printed, so a cost alone can't be judged; what one method costs over
another can, for the price cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.published import read_table
from lockstep.analysis.rules import above, below, enough, graded, within
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    BOUND,
    MODEL,
    NOT_YET,
    TOLERANCE,
    UNDECIDED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    join,
    settle,
)
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CODING,
    DOLLY,
    DPRO_GRADIENT,
    DPRO_STANDBY,
    GRASS,
    LATE,
    SGC,
    WRANGLER,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import mean_mitigation, mitigation, throughput
from lockstep.experiments.e11_straggler_mitigation.prices import (
    OF_TABLE_2,
    computed_of,
    held_gradients,
    node_price,
    nodes_of,
    nodes_over_dpro_sm,
)
from lockstep.experiments.e11_straggler_mitigation.rows import THROUGHPUT, kind_name, kinds_of
from lockstep.experiments.e11_straggler_mitigation.verdicts import by_kind, simulated

RULES = Verdicts()
OF_CLAIM: Mapping[str, str] = {
    "dps-cost-grass": GRASS,
    "dps-cost-dolly": DOLLY,
    "dps-cost-sgc": SGC,
    "dps-cost-late": LATE,
    "dps-cost-wrangler": WRANGLER,
    "dps-cost-dpro-sm": DPRO_STANDBY,
}
"""Claim -> the method whose cost it is."""
PAUSES = ("exponential", "pareto", "bimodal")
"""Kinds of delays that nobody can forecast: they are drawn anew for each task."""
STATE = 3
"""Gradients that a worker's state is as large as, without its activations: parameters, gradient, momentum."""


def _known(found: Estimate | None) -> Estimate:
    if found is None:
        raise NotNow(NOT_YET, "the method was not simulated, or waits for ever under some kind of delays")
    return found


@RULES.add
def cost_of_table_2(claim: Claim, stored: Stored) -> Verdict:
    """A cost of Table 2 over DPro-SM's own, against nodes counted; undecided where a number that nobody states (nodes,
    copies) decides."""
    contender, published = OF_CLAIM[str(claim["id"])], float(claim["value"])
    nodes, price = _known(nodes_of(stored, contender)), node_price(stored)
    measured = f"{nodes.times(price)} USD per hour: {nodes} nodes at an assumed {price:g} USD"
    enough(nodes.rounds)
    workers = int(throughput(stored)["workers"].iloc[0])
    if contender == DPRO_STANDBY:
        why = f"neither nodes nor their price are printed: {published:g} USD is {nodes.value:.3g} nodes of "
        why += f"{published / nodes.value:.3g} USD each, or one of {published:g}, beside which none stands by"
        return Verdict(UNDECIDED, measured, why, grade=BOUND, rounds_more=math.inf)
    ratio, ours = _printed_ratio(contender), _known(nodes_over_dpro_sm(stored, contender))
    measured += f"; {ours} times DPro-SM's, printed is {ratio:.4g}"
    if contender == WRANGLER:
        fewest = math.ceil((1 - TOLERANCE) / TOLERANCE - 1e-9)  # where n / (n + 1) is 1 - TOLERANCE
        why = f"the same without a standby node: n of n + 1 nodes, within {TOLERANCE:.0%} from {fewest} workers on; "
        why += "how many there were is not said"
        return Verdict(UNDECIDED, measured, why, grade=BOUND, rounds_more=math.inf)
    if contender in (DOLLY, SGC):
        least, most = (ratio * (1 + 1 / count) for count in (workers, 1))
        why = f"it takes {least:.3g} copies of all computing with {workers} workers, {most:.3g} with one"
        return Verdict(UNDECIDED, measured, f"{why}; how many copies there were is not said", grade=BOUND,
                       rounds_more=math.inf)  # fmt: skip
    return simulated(replace(within(ratio, ours, measured), numbers=()), stored, THROUGHPUT)


def _printed_ratio(contender: str) -> float:
    table = read_table("dpro-sm", "table2").set_index("row")["dollars_per_hour"]
    printed = {name: float(table[row]) for row, name in OF_TABLE_2.items()}
    return printed[contender] / printed[DPRO_STANDBY]


@RULES.add
def memory_of_table_2(claim: Claim, stored: Stored) -> Verdict:
    """Memory of all nodes in gradients of the model, counted from what each policy must hold. What else a worker holds,
    its activations above all, depends on model and batch, which the paper does not state: so does the answer."""
    rows = throughput(stored)
    if rows.empty:
        raise NotNow(NOT_YET, "no policies were simulated")
    workers = int(rows["workers"].iloc[0])
    parts = []
    for contender in (DPRO_GRADIENT, DPRO_STANDBY, DOLLY, SGC, GRASS, LATE, WRANGLER):
        nodes = _known(nodes_of(stored, contender)).value
        parts.append(f"{contender} {STATE * nodes + held_gradients(contender, workers):.0f}")
    per_worker = held_gradients(DPRO_GRADIENT, workers) / workers
    measured = f"gradients' sizes held with {workers} workers, {STATE} of them a worker's own: {', '.join(parts)}"
    why = f"made-up gradients take {per_worker:g} more for each worker at the server, two copies of everything another "
    why += f"worker's state: alike only where that is {per_worker:g} gradients large, and low, medium and high are not "
    return Verdict(UNDECIDED, measured, why + "said in numbers; no method here needs a disk", grade=BOUND,
                   rounds_more=math.inf)  # fmt: skip


@RULES.add
def redundancy_costs(claim: Claim, stored: Stored) -> Verdict:
    """Do clones, coded copies and a standby node mitigate anything, under each kind of delays, and take more nodes?"""
    parts = []
    for contender in (DOLLY, CODING, DPRO_STANDBY):
        parts.append((f"{contender}, mitigated", settle(partial(_mitigates, stored, contender))))
        parts.append((f"{contender}, nodes", settle(partial(_more_nodes, stored, contender))))
    return simulated(join(parts), stored, THROUGHPUT)


def _mitigates(stored: Stored, contender: str) -> Verdict:
    kinds = kinds_of(throughput(stored))
    parts = [(kind_name(kind), settle(partial(_mitigates_under, stored, contender, kind))) for kind in kinds]
    mean = _known(mean_mitigation(stored, contender)).times(100)
    return by_kind(parts, f"{mean} %, mean over kinds", "some of the delay is saved")


def _mitigates_under(stored: Stored, contender: str, kind: str) -> Verdict:
    found = _known(mitigation(stored, contender, kind)).times(100)
    enough(found.rounds)
    return above(found, 0.0, 0.0, "%", "0 %")


def _more_nodes(stored: Stored, contender: str) -> Verdict:
    found = _known(nodes_of(stored, contender))
    workers = float(throughput(stored)["workers"].iloc[0])
    enough(found.rounds)
    return above(found, workers, workers, f"nodes in all for {workers:g} workers", f"{workers:g} nodes")


@RULES.add
def speculation_wastes(claim: Claim, stored: Stored) -> Verdict:
    """Under pauses, which nobody can forecast: what LATE and GRASS compute per image used; and whether they save less
    than half of what delays cost, on the mean of all kinds. A round has as many tasks as there are workers."""
    parts = []
    for contender in (LATE, GRASS):
        parts.append((f"{contender}, computed", settle(partial(_wastes, stored, contender))))
        parts.append((f"{contender}, mitigated", settle(partial(_gains_little, stored, contender))))
    tasks = int(throughput(stored)["workers"].iloc[0]) if len(throughput(stored)) else 0
    return graded(simulated(join(parts), stored, THROUGHPUT), MODEL, f"little is taken for under a half; {tasks} tasks")


def _wastes(stored: Stored, contender: str) -> Verdict:
    found = _known(computed_of(stored, contender, PAUSES))
    enough(found.rounds)
    return above(found, 1.0, 1.0, "per image used, under pauses", "1")


def _gains_little(stored: Stored, contender: str) -> Verdict:
    return below(_known(mean_mitigation(stored, contender)).times(100), 50.0, "%", "mitigated")
