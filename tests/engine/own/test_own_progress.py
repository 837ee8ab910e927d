"""`lockstep.train(progress=True)` with real workers, and refusals that start none: neither is made up here."""

from __future__ import annotations

import re
from typing import Any

import psutil
import pytest
from torch.optim import SGD

import lockstep
from lockstep.engine.data.errors import DataError
from lockstep.engine.job import JobError
from own_forms import CLASSES, PAIR, ROWS, SPOILT, linear

pytestmark = pytest.mark.usefixtures("no_leftovers")


@pytest.mark.slow  # two worker processes start
def test_the_bar_of_real_workers_is_shown_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    trained = lockstep.train(
        linear(), PAIR, launcher="processes", workers=2, epochs=40, batch_size=8, optimizer=SGD, lr=0.1, progress=True
    )
    told = capsys.readouterr().err
    assert trained is not None and "starting workers" in told
    assert re.search(rf"trained: 100%.*{40 * len(ROWS)}/{40 * len(ROWS)}", told), told


def test_no_bar_where_none_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    lockstep.train(linear(), PAIR, launcher="threads", workers=2, epochs=1, batch_size=8, progress=False)
    assert "images" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "data", "options", "error"),
    [
        (linear(inputs=5), PAIR, {}, JobError),
        (linear(), (SPOILT, CLASSES), {}, DataError),
        (linear(), PAIR, {"loss": "hinge"}, JobError),
        (linear(), PAIR, {"lr": -1}, JobError),
    ],
)
def test_a_refusal_starts_no_process(
    model: Any, data: Any, options: dict[str, Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is the real one: no process is started on the way to the refusal, and none is there after it."""
    forked: list[str] = []
    for name in ("subprocess.Popen.__init__", "multiprocessing.process.BaseProcess.start"):
        monkeypatch.setattr(name, lambda *args, name=name, **named: forked.append(name))
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    with pytest.raises(error):
        lockstep.train(model, data, launcher="processes", workers=2, batch_size=8, **options)
    assert not forked and {child.pid for child in me.children(recursive=True)} <= before
