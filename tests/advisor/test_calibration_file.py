"""A calibration is read as it was written; whatever else a file holds is refused with its place."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.advisor.calibration import (
    NOTHING,
    CalibratedMachine,
    CalibratedModel,
    Calibration,
    CalibrationCell,
    CalibrationError,
    PeakMemory,
)
from lockstep.advisor.calibration_file import differences, parse_calibration, read_calibration, write_calibration
from lockstep.engine.files import WriteError
from lockstep.predict.layout_model import LayerTime

MODEL = CalibratedModel(
    "nets:small", '{"classes": 3}', "torch", "3,8,8", "cross_entropy", "sgd:lr=0.001", 100, 400, 8, 400, 200
)
MACHINE = CalibratedMachine("some processor", "cpu", 2, 8 << 30, "Linux 6.8 x86_64", "3.11.7", "2.9.0")


def cell(sync: str, workers: int, batch: int = 8) -> CalibrationCell:
    return CalibrationCell(sync, workers, batch, 1, (0.5, 0.6), (0.4, 0.5), (0.0, 0.01), (0.1, 0.09))


CALIBRATION = Calibration(
    1, MODEL, MACHINE, (cell("local", 1), cell(NOTHING, 2), cell("ddp", 2)), (0.01, 0.02), (9e9, 8e9),
    (PeakMemory(8, 1 << 30), PeakMemory(32, 2 << 30)), 200 << 20, 2.5, (0.004,), ((1024, 1e-4),),
    (LayerTime(100, 0.001, 0.0002, 64.0),), 0.02, 31.5, "without ddp", {"mpi": "mpich 4"},
)  # fmt: skip


def changed(path: list[str | int], value: Any) -> str:
    """The file's text with another value at one place; ... removes it."""
    values = json.loads(json.dumps(_as_values()))
    inner = values
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(values)


def _as_values() -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(CALIBRATION)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    write_calibration(path, CALIBRATION)
    assert read_calibration(path) == CALIBRATION
    assert [file.name for file in tmp_path.iterdir()] == ["here.json"]
    assert json.loads(path.read_text())["schema"] == 1


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (["schema"], 2, "has schema 2, and this version of Lockstep reads 1"),
        (["schema"], ..., "has no field 'schema'"),
        (["machine", "cores"], ..., "machine: field 'cores' is missing"),
        (["machine", "host"], "a", "machine: field 'host' is unknown"),
        (["machine", "cores"], 0, "machine: cores is 0, and must be at least 1"),
        (["cells", 1, "workers"], 1.5, "cells: 1: workers is 1.5, and must be a whole number"),
        (["cells", 0, "step_seconds", 1], -0.5, "cells: 0: step_seconds: 1 is -0.5"),
        (["cells", 0, "step_seconds"], [0.1, 0.0], "step_seconds holds 0"),
        (["cells", 0, "step_seconds"], [0.1], "lists of different rounds"),
        (["cells", 0, "workers"], 2, "none is of one worker"),
        (["cells"], "many", 'cells is "many", and must be a list'),
        (["optimiser_seconds"], [True], "optimiser_seconds: 0 is true"),
        (["start_seconds"], math.inf, "start_seconds is Infinity"),
        (["start_seconds"], math.nan, "start_seconds is NaN"),
        (["memory", 0], 3, "memory: 0 is 3, and must be an object"),
        (["ping_pong", 0], [1], "must be a list of 2"),
        (["model", "name"], 3, "model: name is 3, and must be a text"),
        (["versions"], [], "versions is [], and must be an object"),
    ],
)
def test_another_file_is_refused_with_its_place(path: list[str | int], value: Any, why: str) -> None:
    with pytest.raises(CalibrationError) as refused:
        parse_calibration(changed(path, value), "box.json")
    assert why in str(refused.value) and "'box.json'" in str(refused.value)


def test_fields_with_a_default_may_be_missing() -> None:
    assert parse_calibration(changed(["layers"], ...)) == replace(CALIBRATION, layers=())


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"nothing.json' can't be read: No such file"):
        read_calibration(tmp_path / "nothing.json")
    (tmp_path / "half.json").write_text('{"schema": 1, ')
    with pytest.raises(CalibrationError, match="is no JSON"):
        read_calibration(tmp_path / "half.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CalibrationError, match="it is no text"):
        read_calibration(tmp_path / "bytes.json")
    with pytest.raises(CalibrationError, match="no field 'schema'"):
        parse_calibration("[1]")
    with pytest.raises(WriteError, match="can't be written"):
        write_calibration(tmp_path / "half.json" / "below.json", CALIBRATION)


def test_what_differs_is_named() -> None:
    assert differences(CALIBRATION, MACHINE, MODEL) == []
    assert differences(CALIBRATION, replace(MACHINE, memory_bytes=(8 << 30) - (64 << 20))) == []
    other = replace(MACHINE, torch="2.10.0", memory_bytes=4 << 30)
    assert differences(CALIBRATION, other, replace(MODEL, optimiser="adam:lr=0.1")) == [
        "machine's memory: 8.0 GiB was calibrated, 4.0 GiB is here",
        "machine's torch: 2.9.0 was calibrated, 2.10.0 is here",
        "model's optimiser: sgd:lr=0.001 was calibrated, adam:lr=0.1 is here",
    ]
    assert differences(CALIBRATION, None, replace(MODEL, name="nets:large")) == [
        "model's name: nets:small was calibrated, nets:large is here"
    ]


def test_numbers_and_nesting_beyond_all_bounds_are_refused() -> None:
    text = json.dumps(_as_values())
    for digits in (400, 6000):
        huge = text.replace('"parameters": 100,', '"parameters": 1' + "0" * digits + ",")
        assert huge != text
        with pytest.raises(CalibrationError, match=r"finite number of at least 0|is no JSON"):
            parse_calibration(huge)
    with pytest.raises(CalibrationError, match="is no JSON"):
        parse_calibration("[" * 200_000 + "]" * 200_000)
