"""A form for questions to the advisor, in a notebook and under Voilà: fields above, and below the advice, always new.

What it says is computed by `advice_text`, a pure function of what the fields hold. ipywidgets is needed for the form
alone, and is looked for when it is asked for.
"""

from __future__ import annotations

import html
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.calibration_file import read_calibration
from lockstep.advisor.links import parse_link
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question, parse_batches, parse_counts
from lockstep.advisor.showing import shown_lines

WITHOUT_WIDGETS = (
    "The form needs ipywidgets: pip install 'lockstep[lab]'. Here is the advice for its fields' own values."
)


@dataclass(frozen=True)
class FormFields:
    """What the fields hold, as text; an empty one asks for nothing."""

    workers: str = "1..8"
    hosts: str = ""
    link: str = ""
    batch: str = "64"
    file: str = ""  # a calibration of the reader's own, by `lockstep advise --save`


HELP: Mapping[str, str] = {
    "workers": "numbers of workers: 1..8 or 1,2,4",
    "hosts": "numbers of machines: 2 or 1,2,4; empty: as many as the workers need",
    "link": "between machines: 1gbit, 10gbit or 25us,1.2e9; empty: one machine",
    "batch": "samples per step over all workers: 64 or 64,128",
    "file": "your own: the file of lockstep advise --save",
}


def question_of(asked: FormFields) -> Question:
    """Raises CalibrationError for a field that can't be read."""
    return Question(
        workers=parse_counts(asked.workers, "workers"),
        hosts=parse_counts(asked.hosts, "hosts") if asked.hosts.strip() else (),
        global_batch_sizes=parse_batches(asked.batch),
        link=parse_link(asked.link) if asked.link.strip() else None,
    )


def advice_text(calibrations: Mapping[str, Calibration], name: str, asked: FormFields) -> str:
    """The advice on one of the calibrations, or on the file that is asked for; why there is none in its place."""
    try:
        if asked.file.strip():
            calibration = read_calibration(asked.file.strip())
            name = calibration.model.name
        elif name in calibrations:
            calibration = calibrations[name]
        else:
            raise CalibrationError(f"there is no calibration {name!r}; there are: {', '.join(calibrations) or 'none'}")
        question = question_of(asked)
        return "\n".join([_asked(name, asked), "", *shown_lines(advise(calibration, question), question)])
    except CalibrationError as error:
        return f"No advice: {error}"


def _asked(model: str, asked: FormFields) -> str:
    """What is answered: a small ResNet, 64 samples per step over all workers, 1..8 workers, a link of 1gbit."""
    told = [model, f"{asked.batch} samples per step over all workers", f"{asked.workers} workers"]
    told += [f"{asked.hosts} machines"] if asked.hosts.strip() else []
    return ", ".join([*told, f"a link of {asked.link}" if asked.link.strip() else "no link"]) + ":"


class AdviceForm:
    """The fields and the advice. `widget` is what a notebook displays; `text` what the advice says now.

    Raises ImportError without ipywidgets.
    """

    def __init__(self, calibrations: Mapping[str, Calibration], asked: FormFields | None = None) -> None:
        widgets = importlib.import_module("ipywidgets")
        asked = asked or FormFields()
        self.calibrations = dict(calibrations)
        wide = {"style": {"description_width": "8em"}, "layout": {"width": "44em"}}
        names = list(self.calibrations) or [""]
        self.model = widgets.Dropdown(options=names, value=names[0], description="model", **wide)
        self.fields: dict[str, Any] = {
            name: widgets.Text(value=getattr(asked, name), description=name, placeholder=words,
                               continuous_update=False, **wide)
            for name, words in HELP.items()
        }  # fmt: skip
        self.advice = widgets.HTML()
        for each in (self.model, *self.fields.values()):
            each.observe(self._changed, names="value")
        self.widget = widgets.VBox([self.model, *self.fields.values(), self.advice])
        self._changed()

    @property
    def text(self) -> str:
        asked = FormFields(**{name: str(field.value) for name, field in self.fields.items()})
        return advice_text(self.calibrations, str(self.model.value), asked)

    def _changed(self, change: object = None) -> None:
        del change  # what the fields hold now is asked for
        self.advice.value = f"<pre>{html.escape(self.text)}</pre>"


def has_front_end(form: bool) -> bool:
    """Whether a form can be used: it was asked for, or Voilà shows the notebook. What executes notebooks in tests has
    no front end, and its outputs must not differ from one run to the next."""
    return form or os.environ.get("SERVER_SOFTWARE", "").startswith("voila")


def advice_form(calibrations: Mapping[str, Calibration], form: bool, asked: FormFields | None = None) -> Any:
    """The form as a widget, or else the advice for the fields' own values as text."""
    note = ""
    if has_front_end(form):
        try:
            return AdviceForm(calibrations, asked).widget
        except ImportError:
            note = f"{WITHOUT_WIDGETS}\n\n"
    name = next(iter(calibrations), "")
    return AdviceText(f"{note}{advice_text(calibrations, name, asked or FormFields())}")


class AdviceText(str):
    """Shows itself in a notebook line by line, as it was written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
