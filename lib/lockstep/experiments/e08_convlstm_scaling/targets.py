"""What we aim at in notebook 08: the cost model's error on cells that it never saw, and two workers on two cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.statistics import AnalysisError, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_MOST, MISSING, Read, Reading, Target, compared, lacking
from lockstep.predict.cost_check import held_out_error
from lockstep.predict.cost_model import CALIBRATION, HELD_OUT, modelled

LARGE_BATCH = 128


def _model_error(stored: Stored) -> Reading:
    try:
        found, cells, left_out = held_out_error(on_one_processor(stored)[0])
    except AnalysisError as error:
        rows = [modelled(on_one_processor(stored)[0], experiments) for experiments in (CALIBRATION, HELD_OUT)]
        return lacking(rows, str(error)) if all(len(each) for each in rows) else lacking(rows, MISSING)
    without = f"; without others: {', '.join(left_out)}" if left_out else ""
    return Reading(found, reason=f"over {cells} cells{without}")


def _two_workers(network: str) -> Read:
    shared: dict[str, Any] = {"experiment": "strong", "use_case": "Pneumonia", "network": network, "variant": "a"}
    shared |= {"global_batch_size": LARGE_BATCH}
    reading = compared({"strategy": "engines_shared_memory", "workers": 2}, {"strategy": "sequential"}, shared=shared)

    def read(stored: Stored) -> Reading:
        """On the rounds of `worker_scaling_table`: what disturbed another network's or batch's cell does not count."""
        own = {name: value for name, value in shared.items() if name != "variant"}
        return reading(replace(stored, records=select(stored.records, own, status=None)))

    return read


TARGETS: tuple[Target, ...] = (
    Target("mean error of the cost model on held-out cells", 0.10, _model_error, AT_MOST),
    Target(f"2 engines over sequential training, CNN, batch {LARGE_BATCH}", 1.70, _two_workers("cnn")),
    Target(f"2 engines over sequential training, ConvLSTM, batch {LARGE_BATCH}", 1.70, _two_workers("convlstm")),
)
