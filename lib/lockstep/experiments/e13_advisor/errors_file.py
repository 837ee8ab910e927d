"""`lockstep/advisor/errors.json`: what the advisor knows of its own errors, out of notebook 13's records.

    kind              cells  median_error  low            high      calibration_spread
    a core each       20     0.05          -0.10          0.09      0.08        of log(measured / predicted)

What a further cell of a kind stays within is a prediction interval of Student's t: mean ± t s sqrt(1 + 1 / cells). Of
some twenty cells the outermost quantiles are hardly known, and they would promise too much.
The calibrations behind the errors were off, too, by how much their rounds differ (the root of the mean square of
`steps.mean_error`): low and high hold that, and so a calibration that is as good widens no range.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd

from lockstep.advisor.errors import ANOTHER_BATCH, ERRORS_FILE, ERRORS_SCHEMA, KindError
from lockstep.engine.files import write_atomically

LEVEL = 0.90
FEWEST_CELLS = 3
"""Of a kind, for an error of its own."""
FEWEST_ROUNDS = 3
"""Of a cell whose error counts: one of fewer may have been measured in a bad minute."""
_DIGITS = 4


def known_errors(predictions: pd.DataFrame, level: float = LEVEL) -> dict[str, KindError]:
    """The error of each kind of cell that has cells enough; one of another batch than calibrated is known by itself
    too. `predictions`: with kind, log_error and error."""
    found: dict[str, KindError] = {}
    if predictions.empty:
        return found
    plain = predictions["kind"].str.removesuffix(ANOTHER_BATCH)
    for name in sorted({*predictions["kind"], *plain}):
        own = predictions[predictions["kind"] == name]
        if len(own) < FEWEST_CELLS and not name.endswith(ANOTHER_BATCH):
            own = predictions[plain == name]
        if len(own) >= FEWEST_CELLS:
            low, high = further_cell(own["log_error"], level)
            spreads = own["calibration_spread"] if "calibration_spread" in own else pd.Series([0.0])
            held = math.sqrt(float((spreads**2).mean()))
            found[name] = KindError(len(own), float(own["error"].median()), low, high, held)
    return found


def further_cell(logs: pd.Series, level: float = LEVEL) -> tuple[float, float]:
    """What a further cell stays within with this chance, by the errors of two cells or more."""
    from scipy.special import stdtrit

    half = stdtrit(len(logs) - 1, (1 + level) / 2) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(logs))
    mean = float(logs.mean())
    return mean - half, mean + half


def errors_text(predictions: pd.DataFrame) -> str:
    """The file, as the predictions of all stored cells of FEWEST_ROUNDS and more give it."""
    if predictions.empty:
        predictions = pd.DataFrame(columns=["rounds", "kind"])
    kinds = {
        name: {key: round(value, _DIGITS) for key, value in vars(error).items()}
        for name, error in known_errors(predictions[predictions["rounds"] >= FEWEST_ROUNDS]).items()
    }
    return json.dumps({"schema": ERRORS_SCHEMA, "kinds": kinds}, indent=1) + "\n"


def write_errors(predictions: pd.DataFrame, path: Path = ERRORS_FILE) -> None:
    """Write the file in place of what stands there. Raises WriteError."""
    write_atomically(path, errors_text(predictions))
