"""The form: its advice is a pure function of what the fields hold, and it changes nothing where widgets are missing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import fake_advisor
from lockstep.advisor.calibration import CalibratedMachine, Calibration
from lockstep.advisor.calibration_file import write_calibration
from lockstep.advisor.form import AdviceForm, FormFields, advice_form, advice_text, question_of
from lockstep.advisor.from_records import calibration_of


@functools.cache
def calibrations() -> dict[str, Calibration]:
    records = fake_advisor.stored(rounds=3, off=0.0, noise=0.0).records
    kept = records[records["experiment"].isin(["calibration", "crowded", "memory"])]
    machine = CalibratedMachine("a CPU", "cpu", 2, 2**34, "", "", "")
    sizes = {"gradient_bytes": 2e7, "optimiser_bytes": 2e7, "empty_process_bytes": 3e8}
    return {name: calibration_of(kept[kept["use_case"] == name], sizes, machine) for name in ("MLPMixer", "TextLSTM")}


class Widget:
    """What the form uses of a widget of ipywidgets: its value, and who observes it."""

    def __init__(self, children: object = (), **fields: Any) -> None:
        self.__dict__.update({"children": children, "value": "", "watching": []} | fields)

    def observe(self, handler: Callable[[object], None], names: str) -> None:
        assert names == "value"
        self.watching.append(handler)

    def type(self, value: str) -> None:
        self.value = value
        for handler in self.watching:
            handler(SimpleNamespace(new=value))


@pytest.fixture
def widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ipywidgets")
    for name in ("Dropdown", "Text", "HTML", "VBox"):
        setattr(module, name, Widget)
    monkeypatch.setitem(sys.modules, "ipywidgets", module)


def test_fields_become_a_question() -> None:
    asked = question_of(FormFields(workers="1,2,4", hosts="2", link="10gbit", batch="64,128"))
    assert (asked.workers, asked.hosts, asked.global_batch_sizes) == ((1, 2, 4), (2,), (64, 128))
    assert asked.link is not None and question_of(FormFields()).link is None


def test_advice_is_for_the_chosen_model_or_the_reader_s_own_file(tmp_path: Path) -> None:
    one, other = (advice_text(calibrations(), name, FormFields()) for name in ("MLPMixer", "TextLSTM"))
    assert one != other and "images/s" in one and "workers" in one
    assert one.startswith("MLPMixer, 64 samples per step over all workers, 1..8 workers, no link:\n\n")
    far = FormFields(workers="1,2", hosts="1,2", link="1gbit", batch="32")
    asked = "MLPMixer, 32 samples per step over all workers, 1,2 workers, 1,2 machines, a link of 1gbit:"
    assert advice_text(calibrations(), "MLPMixer", far).splitlines()[0] == asked
    write_calibration(tmp_path / "own.json", calibrations()["TextLSTM"])
    assert advice_text(calibrations(), "MLPMixer", FormFields(file=str(tmp_path / "own.json"))) == other


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (FormFields(workers="64..1"), "64..1"), (FormFields(link="fast"), "fast"), (FormFields(batch=""), "--batch"),
        (FormFields(hosts="2", workers="4"), "--link"), (FormFields(file="nowhere.json"), "nowhere.json"),
    ],
)  # fmt: skip
def test_a_field_that_can_t_be_read_is_named_in_place_of_advice(asked: FormFields, names: str) -> None:
    text = advice_text(calibrations(), "MLPMixer", asked)
    assert text.startswith("No advice: ") and names in text


def test_a_model_that_is_not_there_lists_those_that_are() -> None:
    assert "MLPMixer, TextLSTM" in advice_text(calibrations(), "GPT", FormFields())
    assert "there are: none" in advice_text({}, "", FormFields())


@pytest.mark.usefixtures("widgets")
def test_every_change_of_a_field_changes_the_advice() -> None:
    form = AdviceForm(calibrations(), FormFields(workers="1,2"))
    first = form.advice.value
    assert first.startswith("<pre>") and form.text in first.replace("&gt;", ">").replace("&#x27;", "'")
    form.model.type("TextLSTM")
    second = form.advice.value
    form.fields["workers"].type("0")
    assert len({first, second, form.advice.value}) == 3 and "No advice" in form.advice.value
    form.fields["workers"].type("1,2")
    assert form.advice.value == second


def test_without_widgets_the_advice_stands_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = advice_form(calibrations(), False, FormFields())
    assert str(plain) == repr(plain) == advice_text(calibrations(), "MLPMixer", FormFields())
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    noted = advice_form(calibrations(), True, FormFields())
    assert "needs ipywidgets" in noted and str(plain) in noted


@pytest.mark.usefixtures("widgets")
def test_voila_shows_the_form_and_tests_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(advice_form(calibrations(), False), str)
    assert isinstance(advice_form(calibrations(), True), Widget)
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5.13")
    assert isinstance(advice_form(calibrations(), False), Widget)


def test_it_is_made_of_real_widgets_where_there_are_any() -> None:
    pytest.importorskip("ipywidgets")
    form = AdviceForm(calibrations(), FormFields(workers="1,2"))
    before = form.advice.value
    form.fields["batch"].value = "128"
    assert form.advice.value != before
