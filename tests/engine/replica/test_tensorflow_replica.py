"""The Keras model behind `TensorFlowReplica` computes what the torch model of the same network and weights does."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
from lockstep.engine.data.loader import Batch
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.models.layers import TORCH_HEADS, Network
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.dropout import KeyedDropout
from lockstep.engine.replica.tensorflow import TensorFlowReplica
from lockstep.engine.replica.tensorflow.runtime import NoTensorFlow, start_tensorflow
from lockstep.engine.training.replicas import replica_for
from small_images import images, needs_tensorflow, small_case

pytestmark = pytest.mark.slow

NETWORKS = [
    Network(channels=1),
    Network(channels=3, classes=4, dropout=0.3, batch_norm=True),
    Network(channels=1, pooling="average", dropout=0.5),
    Network(channels=1, pooling="none", dropout=0.2),
    Network("convlstm", channels=1, dropout=0.4),
    Network("convlstm", channels=3, classes=3, pooling="average"),
    Network("convlstm2d", channels=1, dropout=0.2, batch_norm=True),
    Network("convlstm2d", channels=3, classes=5, pooling="none"),
    Network("cnn", channels=1, convolutions=2, dropout=0.2),
    Network("convlstm", channels=1, lstm_units=24, dense_units=16, head="shuffled"),
    Network("convlstm", channels=1, dropout=0.2, lstm_units=32, head="dense"),
]
EVERY = pytest.mark.parametrize("network", NETWORKS, ids=repr)
SEED = 5


def pair(network: Network) -> tuple[TorchReplica, TensorFlowReplica]:
    """Two replicas with the same weights, none of them 0, and the same flat gradients: zeros."""
    case = small_case(network)
    torch.manual_seed(SEED)
    ours = TorchReplica(case.model(), case.loss, seed=SEED)
    ours.parameters += 0.01 * torch.randn(ours.length)  # biases start at 0, where a wrong place could not be seen
    theirs = TensorFlowReplica(network, ours, SEED)
    for replica in (ours, theirs):
        replica.rebind(gradients=torch.zeros(replica.length))
        replica.clear_gradients()
    return ours, theirs


@needs_tensorflow
def test_tracing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: twenty __autograph_generated_file*.py of each worker stayed in /tmp, for workers leave without atexit."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair(Network(channels=1, dropout=0.1))  # of no other test: it is traced here
    assert list(tmp_path.iterdir()) == []


def batch_of(network: Network, samples: int = 7, epoch: int = 2) -> Batch:
    data = images(samples, network)
    return Batch(data.images, data.labels, 3 * np.arange(samples, dtype=np.int64), epoch)


def weights_of(samples: int = 7) -> np.ndarray:
    return np.linspace(0.1, 1.0, samples)


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, against the largest number."""
    return float((a - b).abs().max() / a.abs().max())


@needs_tensorflow
@EVERY
def test_the_same_weights_give_the_same_outputs(network: Network) -> None:
    ours, theirs = pair(network)
    batch = batch_of(network)
    expected, got = ours.predict(batch), theirs.predict(batch)
    assert got.shape == (7, network.classes) and got.dtype == torch.float32
    assert expected.std() > 1e-3
    assert apart(expected, got) < 1e-5


@needs_tensorflow
@EVERY
def test_the_same_weights_give_the_same_gradients(network: Network) -> None:
    """With dropout on, so that masks are the same; and running statistics, and the sum of two batches, are too."""
    ours, theirs = pair(network)
    first, second = batch_of(network, 7), batch_of(network, 4, epoch=3)
    for batch in (first, second):
        expected = ours.backward(batch, weights_of(len(batch)))
        assert theirs.backward(batch, weights_of(len(batch))) == pytest.approx(expected, rel=1e-5)
    assert ours.gradients.abs().max() > 1e-3
    for part in ours.layer_slices:
        assert apart(ours.gradients[part], theirs.gradients[part]) < 1e-4
    assert theirs.layer_slices == ours.layer_slices
    assert torch.allclose(theirs.buffers, ours.buffers, rtol=1e-5, atol=1e-6)
    assert (ours.buffers.numel() > 0) == network.batch_norm


@needs_tensorflow
def test_masks_are_those_of_keyed_dropout() -> None:
    network = Network(channels=1, dropout=0.3)
    ours, theirs = pair(network)
    batch = batch_of(network)
    layers = [module for module in ours.model if isinstance(module, KeyedDropout)]  # type: ignore[attr-defined]
    ours.keys.epoch, ours.keys.sample_ids = batch.epoch, batch.sample_ids
    masks = theirs._masks(batch)
    assert len(masks) == len(layers) == 3
    for layer, mask in zip(layers, masks, strict=True):
        kept = layer(torch.ones(mask.shape)) > 0
        assert np.array_equal(kept.numpy(), mask)
        assert abs(mask.mean() - 0.7) < 0.02


@needs_tensorflow
def test_gradients_are_replaced_added_to_and_announced() -> None:
    network = Network(channels=1)
    _, replica = pair(network)
    batch, told = batch_of(network), []
    replica.backward(batch, weights_of(), told.append)
    assert sorted(told) == list(range(len(replica.layer_slices))), "once for each part"
    once = replica.gradients.clone()
    replica.backward(batch, weights_of())
    assert torch.allclose(replica.gradients, 2 * once)
    replica.clear_gradients()
    replica.backward(batch, weights_of())
    assert torch.equal(replica.gradients, once), "the same bits, and nothing left of before"
    replica.clear_gradients()
    told.clear()
    empty = Batch(batch.images[:0], batch.labels[:0], batch.sample_ids[:0], batch.epoch)
    assert replica.backward(empty, np.empty(0), told.append) == 0.0
    assert sorted(told) == list(range(len(replica.layer_slices)))
    assert not replica.gradients.any(), "an empty share has a gradient: zero"


@needs_tensorflow
def test_one_worker_steps_on_what_tensorflow_made() -> None:
    """Before a sync binds a buffer, the gradient is not copied; `leaves` are what an optimiser of one worker has."""
    network = Network(channels=1)
    case = small_case(network)
    replica = TensorFlowReplica(network, TorchReplica(case.model(), case.loss))
    before = replica.parameters.clone()
    replica.backward(batch_of(network), weights_of())
    torch.optim.SGD(replica.leaves, lr=0.5).step()
    assert torch.allclose(replica.parameters, before - 0.5 * replica.gradients)
    assert replica.leaves[0].data_ptr() == replica.parameters.data_ptr()
    assert [leaf.shape for leaf in replica.leaves] == [each.shape for each in case.model().parameters()]


@needs_tensorflow
def test_memory_that_others_provide() -> None:
    """Seen: TensorFlow ends the process ("Check failed: IsAligned()") on memory that is not aligned as it wants it."""
    network = Network(channels=1)
    ours, theirs = pair(network)
    batch = batch_of(network)
    pixels = np.empty(batch.images.size + 1, np.float32)[1:].reshape(batch.images.shape)
    pixels[...] = batch.images
    shifted = Batch(pixels, batch.labels, batch.sample_ids, batch.epoch)
    own = theirs.parameters.clone()
    theirs.rebind(parameters=torch.zeros(theirs.length + 1)[1:])
    assert torch.equal(theirs.parameters, own)
    assert apart(ours.predict(batch), theirs.predict(shifted)) < 1e-5
    theirs.rebind(parameters=torch.zeros(theirs.length), adopt=True)
    assert not theirs.parameters.any() and not theirs.predict(batch).any()


@needs_tensorflow
def test_a_network_that_is_not_that_of_the_weights() -> None:
    case = small_case(Network(channels=1))
    with pytest.raises(ValueError, match=r"the torch model has 257537 parameters, Network\(kind='convlstm'"):
        TensorFlowReplica(Network("convlstm", channels=1), TorchReplica(case.model(), case.loss))


@needs_tensorflow
@pytest.mark.parametrize("head", TORCH_HEADS)
def test_heads_that_only_torch_has(head: str) -> None:
    case = small_case(Network("convlstm", channels=1, head=head))
    with pytest.raises(ValueError, match=f"head='{head}' is built in torch alone"):
        TensorFlowReplica(case.network, TorchReplica(case.model(), case.loss))  # type: ignore[arg-type]


@needs_tensorflow
def test_threads_cannot_change_while_tensorflow_runs() -> None:
    start_tensorflow(1)
    with pytest.raises(NoTensorFlow, match=r"not with threads=2: .* train with a launcher"):
        start_tensorflow(2)


def job(**changes: Any) -> Job:
    return Job(use_case="own", strategy="own", framework="tensorflow", **changes)


def test_a_plain_torch_model_is_refused() -> None:
    with pytest.raises(JobError, match=r"'own', whose network is a torch model: .*; give UseCase\.of\(Network"):
        replica_for(tiny.case(), job(), ThreadGroup.of(1)[0])


def test_tensorflow_missing_or_keras_on_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker says; a grid has skipped the row before it came so far."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow", None)
        with pytest.raises(NoTensorFlow, match=r"can't start .*; pip install -r requirements\.lock, or give framework"):
            replica_for(small_case(Network(channels=1)), job(), ThreadGroup.of(1)[0])


@needs_tensorflow
def test_keras_on_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(NoTensorFlow, match="Keras runs on torch here; unset KERAS_BACKEND"):
        start_tensorflow(1)


def test_nobody_imports_tensorflow_who_does_not_need_it() -> None:
    """It takes seconds and 600 MB. All modules of the library, in a process of its own."""
    code = (
        "import importlib, pkgutil, sys, lockstep\n"
        "names = [m.name for m in pkgutil.walk_packages(lockstep.__path__, 'lockstep.') if '__main__' not in m.name]\n"
        "[importlib.import_module(name) for name in names]\n"
        "assert 'lockstep.engine.replica.tensorflow.replica' in sys.modules\n"
        "print([name for name in ('tensorflow', 'keras') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
