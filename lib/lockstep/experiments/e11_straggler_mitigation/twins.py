"""Real ranks and the simulator side by side: the same policy object, the same draws of delays, two clocks.

calibration   waiting for all on 2 and on 4 workers, without delays and with exponential pauses:
              step = simulated with a free server + K + (n + 1) x message          K, message >= 0, least squares
              K holds two latencies and the update, which the server itself has measured
judged        every other cell: its mean step, simulated with these constants and nothing else of it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.statistics import AnalysisError, interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.engine.delays import make_delays
from lockstep.engine.policies import Setting, policy_of
from lockstep.engine.sync.emulation import sleep_costs
from lockstep.experiments.e11_straggler_mitigation.contenders import REAL
from lockstep.experiments.e11_straggler_mitigation.grid import CALIBRATED_ON, CALIBRATION
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, Until, simulate

EXPERIMENT = "real"
COLUMNS = (
    "workers", "delays", "policy", "contender", "measured_seconds", "low", "high", "simulated_seconds", "error",
    "measured_per_image", "simulated_per_image", "rounds", "steps", "calibrated",
)  # fmt: skip


@dataclass(frozen=True)
class Constants:
    """What the cells of the calibration say of the server and its link."""

    latency_seconds: float
    message_seconds: float
    update_seconds: float

    @property
    def link(self) -> AlphaBeta:
        """Of a gradient of one byte."""
        return AlphaBeta(self.latency_seconds, self.message_seconds)


FREE = Constants(0.0, 0.0, 0.0)


def simulated_updates(cell: Mapping[str, Any], constants: Constants, updates: int) -> pd.DataFrame:
    """The updates of a cell of real ranks in virtual time: see `SimulatedRun.updates`."""
    costs = sleep_costs(str(cell["compute"]))
    if costs is None:
        raise AnalysisError(f"compute={cell['compute']!r}: only what is slept can be simulated")
    workers = int(cell["workers"])
    setting = Setting(
        workers, int(cell["images"]), int(cell["global_batch_size"]), int(cell["micro_batch"]), int(cell["standby"]),
        int(cell["seed"]),
    )  # fmt: skip
    priced = Costs(costs.fixed_seconds, costs.image_seconds, 0.0, gradient_bytes=1.0)
    cluster = Cluster(workers, priced, constants.link, constants.update_seconds, int(cell["standby"]))
    policy = policy_of(str(cell["policy"]), str(cell["policy_options"]), setting)
    delays = make_delays(str(cell["delays"]), workers, setting.seed)
    return simulate(policy, cluster, delays, Until(updates=updates), path="events").updates


def simulated_step(cell: Mapping[str, Any], constants: Constants) -> tuple[float, float]:
    """Mean seconds of a measured update, and seconds per image, after the cell's own warm-up."""
    warm_up, steps = int(cell["warmup_steps"]), int(cell["steps"])
    updates = simulated_updates(cell, constants, warm_up + steps)
    ends = np.concatenate([[0.0], updates["ended_seconds"].to_numpy()])
    seconds = float(ends[warm_up + steps] - ends[warm_up])
    return seconds / steps, seconds / float(updates["samples"].iloc[warm_up:].sum())


def calibrated_by(cell: Mapping[str, Any]) -> bool:
    """Is this one of the cells that the constants are fitted to?"""
    return (
        cell["policy"] == "wait_for_all" and cell["delays"] in CALIBRATION and cell["workers"] in CALIBRATED_ON
    )  # fmt: skip


def calibrate(records: pd.DataFrame) -> Constants:
    """Raises AnalysisError where fewer than two numbers of workers were measured."""
    rows, residuals, updates = [], [], []
    for cell, own in _real_cells(records):
        if calibrated_by(cell):
            measured = float(own["step_seconds"].mean())
            rows.append([1.0, cell["workers"] + 1.0])
            residuals.append(measured - simulated_step(_with_seed(cell, own), FREE)[0])
            updates.append(float(own["update_seconds"].mean()))
    if len({row[1] for row in rows}) < 2:
        raise AnalysisError(
            f"the simulator is calibrated by waiting for all on {' and '.join(map(str, CALIBRATED_ON))} workers, which "
            "these records do not hold: measure them"
        )
    from scipy.optimize import nnls  # heavy

    (fixed, message), _ = nnls(np.array(rows), np.array(residuals))
    update = min(float(np.mean(updates)), fixed)
    return Constants((fixed - update) / 2, float(message), update)


def _real_cells(records: pd.DataFrame) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    found = []
    for cell, rows in cells(records, EXPERIMENT):
        good = rows[rows["status"] == "ok"]
        if len(good):
            found.append((cell, good))
    return found


def _with_seed(cell: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, Any]:
    """The cell with what is no part of its identity."""
    return {**cell, **{name: int(rows[name].iloc[0]) for name in ("seed", "steps", "warmup_steps")}}


def _contender(cell: Mapping[str, Any]) -> str:
    return next((name for name, one in REAL.items() if one.policy == cell["policy"]), str(cell["policy"]))


@once
def twins_table(stored: Stored) -> pd.DataFrame:
    """A row per cell on real ranks: what was measured and what is simulated (columns: COLUMNS), both in seconds of an
    update and of an image. `low`, `high`: the interval of the measured mean, NaN of fewer than five rounds."""
    records = stored.quiet.records
    try:
        constants = calibrate(records)
    except AnalysisError:
        return pd.DataFrame(columns=list(COLUMNS))
    rows = []
    for cell, own in _real_cells(records):
        whole = _with_seed(cell, own)
        step, image = simulated_step(whole, constants)
        measured = float(own["step_seconds"].mean())
        low, high = _interval(own)
        rows.append(
            {
                "workers": cell["workers"], "delays": cell["delays"], "policy": cell["policy"],
                "contender": _contender(cell), "measured_seconds": measured, "low": low, "high": high,
                "simulated_seconds": step, "error": step / measured - 1,
                "measured_per_image": float((1 / own["images_per_second"]).mean()), "simulated_per_image": image,
                "rounds": len(own), "steps": whole["steps"], "calibrated": calibrated_by(cell),
            }
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _interval(rows: pd.DataFrame) -> tuple[float, float]:
    try:
        found = interval_of(rows.set_index(["session", "round"])["step_seconds"].astype(float))
    except AnalysisError:
        return math.nan, math.nan
    _, low, high = found.columns  # NaN where there are too few rounds
    return low, high


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that calibrated nothing."""
    return table[~table["calibrated"].astype(bool)]


def total_error(table: pd.DataFrame) -> float:
    """Of the time of all judged cells together: simulated over measured, less 1."""
    own = judged(table)
    return float((own["simulated_seconds"] * own["steps"]).sum() / (own["measured_seconds"] * own["steps"]).sum() - 1)


def order_table(stored: Stored) -> pd.DataFrame:
    """Pairs of policies that real ranks tell apart under the same delays on as many workers, by disjoint intervals of
    the time per image: workers, delays, faster, slower, and whether the simulator has them in the same order."""
    found = []
    table = twins_table(stored)
    for (workers, delays), own in table.groupby(["workers", "delays"], sort=False):
        ranked = own.sort_values("measured_per_image").to_dict("records")
        for place, first in enumerate(ranked):
            for second in ranked[place + 1 :]:
                if _apart(first, second):
                    same = first["simulated_per_image"] < second["simulated_per_image"]
                    names = {"faster": first["contender"], "slower": second["contender"]}
                    found.append({"workers": workers, "delays": delays, **names, "same_order": same})
    return pd.DataFrame(found, columns=["workers", "delays", "faster", "slower", "same_order"])


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Are the intervals of two times per image disjoint? They are as wide, in proportion, as those of the steps."""
    if math.isnan(first["high"]) or math.isnan(second["low"]):
        return False
    upper = first["measured_per_image"] * first["high"] / first["measured_seconds"]
    return bool(upper < second["measured_per_image"] * second["low"] / second["measured_seconds"])
