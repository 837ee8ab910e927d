"""How far predictions were off: of each kind of cell, quantiles of log(measured / predicted) over held-out cells.

They are measured by notebook 13 and stand in `errors.json`, which its experiment writes from its records. Where a kind
was never measured, an assumed width stands in, and says so.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.advisor.calibration import CalibrationError

ERRORS_FILE = Path(__file__).with_name("errors.json")
ERRORS_SCHEMA = 1
AS_CALIBRATED, ONE_WORKER, A_CORE_EACH = "as calibrated", "one worker", "a core each"
TURNS, SEVERAL_HOSTS, PIPELINE = "turns on a core", "several hosts", "a pipeline"
ANOTHER_BATCH = ", another batch"
THREADED = ", threads"
"""Workers of several threads on a host each, of which no two were calibrated."""
WIDER = 1.5
"""The range of another batch over that of its kind, where it has no error of its own: assumed."""
_ASSUMED = {AS_CALIBRATED: 0.05, ONE_WORKER: 0.10, A_CORE_EACH: 0.15, TURNS: 0.25, SEVERAL_HOSTS: 0.35, PIPELINE: 0.40}


@dataclass(frozen=True)
class KindError:
    """The error of one kind of cell. `low` and `high` hold 90 % of log(measured / predicted)."""

    cells: int  # held out; 0: the width is assumed
    median_error: float  # of |measured / predicted - 1|
    low: float
    high: float
    calibration_spread: float = 0.0  # `steps.mean_error` of the calibrations behind it, which low and high so hold

    @property
    def assumed(self) -> bool:
        return self.cells == 0


def read_errors(path: Path = ERRORS_FILE) -> dict[str, KindError]:
    """The measured error of each kind; empty while nobody has measured it. Raises CalibrationError for a wrong file."""
    return dict(_read(path)) if path.is_file() else {}


@functools.cache
def _read(path: Path) -> Mapping[str, KindError]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["schema"] != ERRORS_SCHEMA:
            raise CalibrationError(f"{path.name} has schema {stored['schema']!r}, not {ERRORS_SCHEMA}; make it anew")
        found = {
            kind: KindError(
                int(one["cells"]), float(one["median_error"]), float(one["low"]), float(one["high"]),
                float(one.get("calibration_spread", 0.0)),
            )
            for kind, one in stored["kinds"].items()
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise CalibrationError(f"{path.name} is not readable ({error!r}); measure it anew, by notebook 13") from error
    wrong = [kind for kind, one in found.items() if not (math.isfinite(one.low) and one.low <= one.high < math.inf)]
    if wrong:
        raise CalibrationError(f"{path.name}: {wrong[0]!r} has no range from low to high; measure it anew")
    return found


def source_of(kind: str, errors: Mapping[str, KindError]) -> str:
    """The kind whose measured error stands for this one: itself, or without regard to the batch; "" where none was
    measured."""
    known = [name for name in (kind, kind.removesuffix(ANOTHER_BATCH)) if name in errors and errors[name].cells]
    return known[0] if known else ""


def error_of(kind: str, errors: Mapping[str, KindError]) -> KindError:
    """The error of a kind; of another batch, where it was not measured, WIDER times the range of its kind; else an
    assumed one."""
    plain, source = kind.removesuffix(ANOTHER_BATCH), source_of(kind, errors)
    if source == kind:
        return errors[kind]
    if source:
        found = errors[source]
        middle, half = (found.low + found.high) / 2, WIDER * (found.high - found.low) / 2
        return replace(found, low=middle - half, high=middle + half)
    width = _ASSUMED[plain.partition(",")[0]] * (WIDER if kind != plain else 1.0)
    return KindError(0, math.nan, -math.log1p(width), math.log1p(width))
