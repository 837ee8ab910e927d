"""The advice for models that were calibrated here, for readers to change: a form, or its text where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.advisor.calibration import CalibratedMachine, Calibration, CalibrationError
from lockstep.advisor.form import FormFields, advice_form
from lockstep.analysis.one_session import on_one_processor
from lockstep.experiments.e13_advisor.checking import held_out, stored_calibration
from lockstep.experiments.e13_advisor.tables import model_name
from lockstep.records import read_run

if TYPE_CHECKING:
    from pathlib import Path

    from lockstep.analysis.stored import Stored
    from lockstep.experiments.opening import Run

FIRST = FormFields(workers="1..8", link="1gbit", batch="64")


def try_it(run: Run, form: bool) -> Any:
    """The form for the models of an opened notebook's records; `form`: with widgets, if they are installed."""
    return advice_form(calibrations(run.stored, run.folder), form, FIRST)


def calibrations(stored: Stored, folder: Path) -> dict[str, Calibration]:
    """The calibration of every model whose rows are stored, by its name in words."""
    found, session = {}, int(on_one_processor(stored.shown)[0]["session"].max()) if len(stored.records) else -1
    for use_case in dict.fromkeys(held_out(stored.shown.records)["use_case"]):
        try:
            found[model_name(use_case)] = stored_calibration(stored.shown, use_case, machine_of_run(folder, session))
        except CalibrationError:
            continue
    return found


def machine_of_run(folder: Path, session: int = -1) -> CalibratedMachine:
    """The machine of a run's session, without a number of the last one."""
    machine = read_run(folder)["sessions"][session]["machine"]
    return CalibratedMachine(
        str(machine["cpu"]), "cpu", int(machine["cores"]), int(machine["memory_bytes"]), "", "", ""
    )
