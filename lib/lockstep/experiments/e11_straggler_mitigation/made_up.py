"""What made-up gradients are worth, and what leaving out the same worker for ever costs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    DROP_ONE,
    NOTHING_STANDS_IN,
    STAND_INS,
    WAIT,
    ZERO_STANDS_IN,
)
from lockstep.experiments.e11_straggler_mitigation.rows import (
    PARTITIONS,
    STAND_IN,
    kind_name,
    lacking_reason,
    mean_over_seeds,
    ratio_over_seeds,
    rows_of,
    wide,
)

CONTROLS = {"loss_over_nothing": NOTHING_STANDS_IN, "loss_over_zero": ZERO_STANDS_IN}
OWN, OTHERS = "worker 0's images", "the other workers' images"


@once
def stand_in_losses(stored: Stored) -> pd.DataFrame:
    """Loss after the same number of updates: seeds x (delays, contender)."""
    return wide(rows_of(stored, STAND_IN), "loss", ["delays", "contender"])


def kinds_that_differ(stored: Stored) -> list[str]:
    """Kinds of delays in which the losses of the stand-ins are not those of an earlier kind to the last digit: whoever
    no longer waits for a slow node trains as if it had gone, and that is not seen twice."""
    losses = stand_in_losses(stored)
    kinds: list[str] = []
    for delays in dict.fromkeys(rows_of(stored, STAND_IN)["delays"]):
        own = losses[delays].drop(columns=WAIT, errors="ignore") if delays in losses else pd.DataFrame()
        if not any(own.equals(losses[other].drop(columns=WAIT, errors="ignore")) for other in kinds):
            kinds.append(str(delays))
    return kinds


def loss_over(stored: Stored, contender: str, delays: str, control: str) -> Estimate | None:
    """A stand-in's final loss over that of one of the CONTROLS: leaving the same workers out and giving the others
    their weight, or not giving it to them."""
    losses = stand_in_losses(stored)
    if not {(delays, contender), (delays, control)} <= set(losses):
        return None
    return ratio_over_seeds(losses[delays, contender] / losses[delays, control])


@once
def stand_in_table(stored: Stored) -> pd.DataFrame:
    """By kind of delays and what stands in: cosine with the gradient over all images, that of real contributions to the
    same updates, final loss, and that loss over those of the CONTROLS: nothing in the missing place, or a zero."""
    rows, table = rows_of(stored, STAND_IN), []
    for delays in dict.fromkeys(rows["delays"]):
        for contender in STAND_INS:
            own = rows[(rows["delays"] == delays) & (rows["contender"] == contender)].set_index("seed")
            if own.empty:
                continue
            row: dict[str, Any] = {"delays": delays, "kind": kind_name(str(delays)), "contender": contender}
            for name in ("cosine", "own_cosine", "loss"):
                row |= mean_columns(mean_over_seeds(own[name].astype(float)), name)
            for column, control in CONTROLS.items():
                row |= mean_columns(loss_over(stored, contender, str(delays), control), column)
            row |= {"stand_ins": float(own["stand_ins"].mean()), "seeds": len(own), "reason": lacking_reason(own)}
            table.append(row)
    return pd.DataFrame(table)


@once
def partition_table(stored: Stored) -> pd.DataFrame:
    """Leaving out the slowest worker of each update over waiting for all, after the same number of images: the loss on
    worker 0's own images and on the others', by kind of delays and by where the images are."""
    rows, table = rows_of(stored, PARTITIONS), []
    for (delays, data), own in rows.groupby(["delays", "data"], sort=False):
        for part, column in ((OWN, "loss_of_worker_0"), (OTHERS, "loss_of_others")):
            losses = wide(own, column, "contender")
            if not {WAIT, DROP_ONE} <= set(losses):
                continue
            row: dict[str, Any] = {"delays": delays, "kind": kind_name(str(delays)), "data": data, "part": part}
            row |= mean_columns(ratio_over_seeds(losses[DROP_ONE] / losses[WAIT]), "ratio")
            row |= {"waiting": float(losses[WAIT].mean()), "leaving_out": float(losses[DROP_ONE].mean())}
            table.append(row | {"seeds": len(losses)})
    return pd.DataFrame(table)
