"""Records of notebook 10 as they could be: made up, so that tests know all and every answer can be made to flip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.experiments.e10_straggler_forecasts.causes import DEPTHS, EXPONENTS, NETWORKS, PARTS, SIGMOID, WAYS
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BINS,
    DECIDING,
    DRAWN,
    FORECASTERS,
    LEARNING_CURVES,
    WITH_STATE,
)
from lockstep.experiments.e10_straggler_forecasts.grid import (
    COSTS,
    FORECASTS,
    INPUT_PARTS,
    KINDS,
    SLOW_LOADING,
    TRACED,
    VANISHING,
    cells,
    comparisons,
)
from lockstep.experiments.e10_straggler_forecasts.worlds import FOLDER
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, Row, make_row

CHOSEN = Parameters(workers=8, history=400, cost_history=100, repetitions=3, use_cases=["Pneumonia", "SimpleBig"])
ERRORS = {"last": 1.0, "mean": 0.95, "median": 0.7, "smoothing": 0.9, "ar": 0.85, "linear": 0.9, "best": 0.72}
ERRORS |= {"lstm": 0.6, "trained": 0.6, "oracle": 0.0}
"""Relative to the last value's, on all kinds."""
SECONDS = {"read": 0.1, "decode": 5.0, "scale": 3.0, "normalise": 1.9}  # ms
NO_ONSETS = ("bad node",)
Tables = dict[str, list[dict[str, Any]]]


def stored(**changes: Any) -> Stored:
    """All cells and their traced tables; `changes`: of what `_rows_of` makes up."""
    jobs, rows, number = [_real(job) for job in cells(CHOSEN)], [], 0
    tables: Tables = {}
    for comparison in comparisons(jobs):
        for repetition in range(comparison.rounds):
            job = jobs[comparison.cells[0]]
            job = job.with_(round=number, seed=repetition if job.simulated else 0)
            rows.append(make_row(job, {"step_seconds": 1.0, "measuring_seconds": 2.0}))
            dice = np.random.default_rng([number, 1])
            for name, own in _rows_of(job, dice, **changes).items():
                tables.setdefault(name, []).extend(_of_cell(job) | row for row in own)
            number += 1
    return Stored(_frame(rows), {name: pd.DataFrame(own) for name, own in tables.items()})


def _real(job: Job) -> Job:
    return job.with_(data_source="real", images=400) if job.use_case != "none" else job


def _frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _of_cell(job: Job) -> dict[str, Any]:
    names = ("experiment", "use_case", "strategy", "round", "workers", "device", "delays", "seed")
    return {name: getattr(job, name) for name in names}


def _rows_of(
    job: Job,
    dice: np.random.Generator,
    lstm: float = ERRORS["lstm"],
    trained: float = 0.0,
    best: float = ERRORS["best"],
    recall: float = 0.8,
    early: float = 1.3,
    behind: float = 1.05,
    passed_on: float = 0.5,
    decoding: float = 5.0,
    slow_step: float = 1.5,
    stragglers: float = 0.9,
    learned: float = 1.2,
    denormal: float = 40.0,
) -> Tables:
    """`lstm`, `trained` (as `lstm` if 0), `best`: errors over the last value's; `early`: times as large with few
    rounds; `recall`: of onsets; `behind`: the slowest worker over its peers; `passed_on`: a first gradient over the
    last one; `decoding`: ms; `slow_step`, `stragglers`: of slow loading; `learned`: a learned forecaster's error on
    traces; `denormal`: times."""
    if job.experiment == FORECASTS:
        return _forecasts(job, dice, ERRORS | {"lstm": lstm, "trained": trained or lstm, "best": best}, recall, early)
    if job.experiment == TRACED:
        return {"trace_forecasts": list(_traced(ERRORS | dict.fromkeys(("ar", "linear", "lstm"), learned)))}
    if job.experiment == SLOW_LOADING:
        row = {"slow_share": 0.2, "stragglers_of_slow": stragglers + dice.normal(0, 0.01)}
        row |= {"stragglers_of_others": 0.0, "step_seconds": 1.07 * slow_step * dice.normal(1, 0.01)}
        row |= {"worker_seconds": 1.1, "usual_worker_seconds": 1.0, "usual_step_seconds": 1.07}
        return {"slow_loading": [row]}
    if job.experiment == COSTS:
        return {"forecast_costs": list(_costs(dice))}
    if job.experiment == VANISHING:
        return {"denormals": list(_scales(dice, denormal)), "gradients": list(_gradients(dice, behind, passed_on))}
    assert job.experiment == INPUT_PARTS
    return {"input_parts": list(_parts(dice, decoding))}


def _costs(dice: np.random.Generator) -> Any:
    for name in FORECASTERS:
        asking, training = 0.2 * dice.normal(1, 0.02), 1.5 if name == "lstm" else 0.0
        yield {"forecaster": name, "asking_milliseconds": asking, "training_milliseconds": training}
    for name in DECIDING:
        yield {"forecaster": name, "asking_milliseconds": 0.5 * dice.normal(1, 0.02), "training_milliseconds": 1.0}


def _parts(dice: np.random.Generator, decoding: float) -> Any:
    for way in WAYS:
        for part in PARTS:
            milliseconds = decoding if part == "decode" else SECONDS[part]
            yield {"way": way, "part": part, "milliseconds": milliseconds * dice.normal(1, 0.01), "megapixels": 1.2}


def _forecasts(job: Job, dice: np.random.Generator, errors: dict[str, float], recall: float, early: float) -> Tables:
    kind = next((name for name, text in KINDS.items() if text == job.delays), "")
    world = float(dice.normal(1, 0.05))  # one is harder than another, for everybody
    found: Tables = {"forecasts": [], "histories": []}
    for state in ("none", "credits") if kind == "burst credits" else ("none",):
        for name, error in errors.items():
            if state == "credits" and name not in WITH_STATE:
                continue
            own = error * world * float(dice.normal(1, 0.01))
            for period in ("early", "later"):
                found["forecasts"].append(
                    {"forecaster": name, "state": state, "period": period, "mean_absolute_error": own}
                    | _detected(dice, name, kind, 0.95 if state == "credits" else recall)
                )
            if state == "none" and name in LEARNING_CURVES:
                found["histories"] += [
                    {"forecaster": name, "state": state, "seen_rounds": seen,
                     "mean_absolute_error": own * (early if seen < 10 and name == "lstm" else 1.0)}
                    for seen in BINS
                ]  # fmt: skip
    if job.seed == 0 and kind in DRAWN:
        found["examples"] = [
            {"forecaster": name, "task": task, "seconds": 1.0 + task % 3}
            for name in ("seen", *LEARNING_CURVES) for task in range(40)
        ]  # fmt: skip
    return found


def _detected(dice: np.random.Generator, name: str, kind: str, recall: float) -> dict[str, float]:
    sees = {"lstm": recall, "trained": recall, "oracle": 1.0, "last": 0.0}.get(name, 0.2 * recall)
    if kind in ("Markov states", "groups"):
        sees = 0.02
    onsets = float("nan") if kind in NO_ONSETS else sees * float(dice.normal(1, 0.01))
    return {
        "base_rate": 0.2, "straggler_precision": 0.9, "straggler_recall": 0.9, "f1": 0.9 + 0.001 * dice.normal(),
        "average_precision": 0.8, "onsets": 40.0, "onset_recall": onsets, "lead_rounds": 1.5, "chance": 0.01,
        "below_0.1": 0.1 + 0.002 * dice.normal(), "below_0.5": 0.5 + 0.002 * dice.normal(),
        "below_0.9": 0.9 + 0.002 * dice.normal(),
    }  # fmt: skip


def _traced(errors: dict[str, float]) -> Any:
    for unit in ("steps", "micro-batches"):
        for stage in range(2):
            for name, error in errors.items():
                yield {"forecaster": name, "unit": unit, "stage": stage, "mean_absolute_error": error, "memory": 0.1,
                       "base_rate": 0.05, "onsets": 3, "onset_recall": 0.0, "chance": 0.0, "lead_rounds": float("nan"),
                       "below_0.1": 0.1, "below_0.5": 0.5, "below_0.9": 0.9}  # fmt: skip


def _scales(dice: np.random.Generator, denormal: float) -> Any:
    for flushed in (0, 1):
        for exponent in EXPONENTS:
            slow = denormal if exponent <= -38 and not flushed else 1.0
            yield {"exponent": exponent, "flushed": flushed, "seconds": 1e-3 * slow * dice.normal(1, 0.01)}


def _gradients(dice: np.random.Generator, behind: float, passed_on: float) -> Any:
    for name, depth in [(SIGMOID, depth) for depth in DEPTHS] + [(name, 0) for name in NETWORKS]:
        first = 10.0**-depth if depth else passed_on
        for worker in range(8):
            slow = behind if worker == 3 and depth == DEPTHS[-1] else 1.0
            yield {"name": name, "depth": depth, "worker": worker, "first_gradient": first * dice.normal(1, 0.01),
                   "last_gradient": 1.0, "denormal_share": 0.2 if depth > 40 else 0.0,
                   "seconds": 1e-2 * slow * (20 if depth > 40 else 1) * dice.normal(1, 0.002),
                   "flushed_seconds": 1e-2}  # fmt: skip


def recorded(folder: Path) -> str:
    """A data folder with a trace: two stages, two workers, two micro-batches; of the steps 4, 5 and 9 the last one
    follows nothing."""
    rows = [
        {"stage": stage, "worker": w, "step": step, "micro_batch": batch, "seconds": 1.0 + w + 10 * stage + step}
        for stage in range(2)
        for w in range(2)
        for step in (4, 5, 9)
        for batch in range(2)
    ]
    (folder / FOLDER).mkdir()
    pd.DataFrame(rows).to_parquet(folder / FOLDER / "AR.parquet")
    return str(folder)
