"""A Keras model of the reader's: on torch it is measured as any torch model; on TensorFlow it is refused with the fix.

In processes of their own, for Keras chooses its backend when it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,  # Keras and its backend are imported
    pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="without Keras"),
]
MODEL = """
import keras


def small(classes=3):
    return keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(classes),
    ])
"""
LOOK = """
import json, sys
from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.own_model import ModelAsked, look_at
try:
    own = look_at(ModelAsked("small_keras:small", "6", classes=4, batch=4), free_bytes=1 << 33)
except CalibrationError as error:
    print(json.dumps({"refused": str(error)}))
else:
    case, facts = own.case, own.facts
    import torch
    rows = torch.from_numpy(case.train.load(torch.arange(2).numpy(), 0, 0))
    loss = case.loss(case.model()(rows), torch.tensor([0, 3]))
    print(json.dumps({"framework": facts.framework, "parameters": facts.parameters, "losses": loss.tolist(),
                      "loss": facts.loss, "gradient_bytes": facts.gradient_bytes}))
"""


def looked(folder: Path, backend: str) -> dict[str, object]:
    """What `look_at` found of the model in a new process whose Keras has this backend."""
    (folder / "small_keras.py").write_text(MODEL, encoding="utf-8")
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_HOME": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_keras_model_on_torch_is_looked_at(tmp_path: Path) -> None:
    found = looked(tmp_path, "torch")
    parameters = 6 * 8 + 8 + 8 * 4 + 4
    assert (found["framework"], found["parameters"], found["gradient_bytes"]) == ("keras", parameters, 4 * parameters)
    assert found["loss"] == "cross_entropy" and len(found["losses"]) == 2  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="without TensorFlow")
def test_a_keras_model_on_tensorflow_is_refused_with_the_fix(tmp_path: Path) -> None:
    told = str(looked(tmp_path, "tensorflow")["refused"])
    assert "makes a Keras model on TensorFlow" in told and "start with KERAS_BACKEND=torch" in told
