"""A reader's own model: what is taken, and every refusal before a worker starts."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.needed_memory import TooLarge
from lockstep.advisor.measuring.own_model import ModelAsked, OwnModel, load_case, look_at
from lockstep.engine.job import JobError
from lockstep.engine.own.losses import LOSSES, read_loss

PERCEPTRON = ModelAsked("own_models:perceptron", "6", batch=4)


def refusal(model: str = "own_models:perceptron", inputs: str = "6", **others: Any) -> str:
    with pytest.raises(CalibrationError) as refused:
        look_at(ModelAsked(model, inputs, **others), free_bytes=1 << 33)
    return str(refused.value)


def seen(asked: ModelAsked) -> OwnModel:
    return look_at(asked, free_bytes=1 << 33)


def test_a_factory_becomes_a_use_case_that_travels() -> None:
    own = seen(PERCEPTRON)
    case = pickle.loads(pickle.dumps(own.case))
    assert case.train.shape == (1, 1, 6) and case.train.classes == ("0", "1", "2")
    rows = torch.from_numpy(case.train.load(torch.arange(4).numpy(), 0, 0))
    losses = case.loss(case.model()(rows), torch.tensor([0, 1, 2, 0]))
    assert losses.shape == (4,) and bool(torch.isfinite(losses).all())
    facts = own.facts
    assert facts.parameters == 6 * 8 + 8 + 8 * 3 + 3 and facts.gradient_bytes == 4 * facts.parameters
    assert facts.optimiser_bytes == 4 * facts.parameters, "momentum"
    assert facts.largest_layer_bytes == 4 * 56 and facts.buffer_bytes == 0
    assert (facts.loss, facts.optimiser) == ("cross_entropy", "sgd:lr=0.001,momentum=0.9")
    assert own.sequential and own.sample_seconds >= 0 and own.needed is not None
    saved = own.needed.saved_bytes
    assert saved is not None and 4 * (6 + 8) * 4 <= saved <= 4 * 4 * (6 + 8 + 8 + 8 + 3 + 3 + 3 + 2)


def test_what_a_factory_takes_is_given_to_it() -> None:
    facts = seen(ModelAsked("own_models:small_convolution", "3,8,8", classes=5)).facts
    assert facts.arguments == '{"num_classes": 5}' and facts.inputs == "3,8,8"
    assert facts.buffer_bytes == 4 * 8 + 8, "running mean and variance, and a counter"
    hidden = seen(replace(PERCEPTRON, model_args='{"hidden": 2, "classes": 7}', optimiser="adam:lr=0.1"))
    assert hidden.facts.parameters == 14 + 21 and hidden.facts.optimiser_bytes == 8 * 35
    assert hidden.facts.arguments == '{"classes": 7, "hidden": 2}' and len(hidden.case.train.classes) == 7  # type: ignore[union-attr]


def test_a_class_an_instance_and_the_papers_networks_will_do() -> None:
    assert seen(ModelAsked("own_models:Both", '["3,8,8", "int64:5"]', vocabulary=11)).facts.parameters == 834
    taken = seen(ModelAsked("own_models:TAKEN", "6"))
    assert taken.facts.parameters == 21 and taken.case.model() is not taken.case.model()


def test_tokens_and_a_dictionary_with_logits() -> None:
    own = seen(ModelAsked("own_models:Words", "int64:5", vocabulary=13))
    assert own.facts.arguments == '{"vocab_size": 13}' and own.facts.loss == "cross_entropy"
    output = own.case.model()(torch.zeros(2, 1, 1, 5))
    assert own.case.loss(output, torch.tensor([0, 12])).shape == (2,)


def test_losses_by_name_and_of_ones_own() -> None:
    assert seen(replace(PERCEPTRON, model_args='{"classes": 1}')).facts.loss == "binary_cross_entropy"
    for name in ("binary_cross_entropy", "mse", "l1", "own_models:squares"):
        case = load_case(replace(PERCEPTRON, loss=name))
        assert case.loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])).shape == (4,), name
    assert "there are: cross_entropy" in refusal(loss="hinge")
    assert "one value per sample" in refusal(loss="own_models:mean_losses")
    assert "has no 'square'; did you mean squares?" in refusal(loss="own_models:square")


OF_TORCH = [
    "torch.nn.functional:mse_loss", "torch.nn.functional:cross_entropy", "torch.nn.functional:multi_margin_loss",
    "torch.nn:MSELoss", "torch.nn:MultiLabelMarginLoss", "torch.nn:MultiLabelSoftMarginLoss", "torch.nn:NLLLoss",
    "own_models:SMOOTH",
]  # fmt: skip


@pytest.mark.parametrize("name", [*LOSSES, *OF_TORCH])
def test_every_loss_of_lockstep_train_is_taken(name: str) -> None:
    """The value is that of torch's own loss on the target that the labels stand for."""
    case = pickle.loads(pickle.dumps(load_case(replace(PERCEPTRON, loss=name))))
    output, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0])
    found, spread = case.loss(output, labels), labels[:, None].expand(4, 3).float()
    assert found.shape == (4,)
    if "mse" in name.lower():
        assert torch.allclose(found, (output - spread).square().mean(1))
    elif "cross_entropy" in name and "binary" not in name:
        assert torch.allclose(found, torch.nn.functional.cross_entropy(output, labels, reduction="none"))
    elif name == "huber":
        assert torch.allclose(found.mean(), torch.nn.functional.huber_loss(output, spread))


def test_losses_that_lockstep_train_refuses_are_refused() -> None:
    assert "reduction='sum') gives one value per batch" in refusal(loss="own_models:SUMMED")
    assert "making an object of it fails with TypeError" in refusal(loss="own_models:OwnLoss")
    assert "can't be called" in refusal(loss="own_models:NUMBER")
    with pytest.raises(JobError, match="'hinge' does not exist"):
        read_loss("hinge")


def test_optimizers_of_ones_own() -> None:
    own = seen(replace(PERCEPTRON, optimiser="own_models:own_adam"))
    assert own.facts.optimiser_bytes == 8 * own.facts.parameters and own.facts.optimiser == "own_models:own_adam"
    case = pickle.loads(pickle.dumps(own.case))
    assert case.optimiser(case.model().parameters()).defaults["lr"] == 0.01
    assert seen(replace(PERCEPTRON, optimiser="torch.optim:RMSprop")).facts.optimiser_bytes > 0
    assert "steps on a part of a parameter otherwise" in refusal(optimiser="own_models:OfLengths")
    assert "fails in a first step" in refusal(optimiser="torch.optim:LBFGS")
    assert "is over the parameters of another model" in refusal(optimiser="own_models:MADE")
    assert "gives a str" in refusal(optimiser="builtins:str")
    assert "has no 'own_adm'; did you mean own_adam?" in refusal(optimiser="own_models:own_adm")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("own_model:perceptron", "no module 'own_model'; did you mean own_models"),
        ("own_models:perceptrn", "has no 'perceptrn'; did you mean perceptron"),
        ("lockstep.models.alexnet:alexnet", "did you mean lockstep.engine.models.alexnet"),
        ("own_models", "must be module:name"),
        ("own_models:NUMBER", "is a int; name a function or class"),
        ("own_models:no_module", "makes a str; let it return an nn.Module"),
        ("own_models:keras_model", "start with KERAS_BACKEND=torch"),
        ("own_models:failing", "fails with RuntimeError: the weights are nowhere"),
        ("own_models:lazy", "the size of 0.weight is not known"),
        ("own_models:halves", "'model.weight' is float16, and parameters are trained in float32"),
        ("torch.nn:Flatten", "has no parameter to train"),
        ("own_models:shaky", "no finite number in the first pass"),
        ("own_models:talkative", "returns a tuple of 2, for which there is no loss"),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused(model: str, why: str) -> None:
    assert why in refusal(model)


def test_arguments_that_are_missing_or_unknown_are_named() -> None:
    missing = refusal("own_models:small_convolution", "3,8,8")
    assert "needs an argument: num_classes" in missing and "--classes" in missing
    assert "needs arguments: in_features, out_features" in refusal("torch.nn:Linear")
    assert "no such argument; did you mean hidden?" in refusal(model_args='{"hiden": 3}')
    assert "is no JSON" in refusal(model_args="hidden=3") and "no JSON object" in refusal(model_args="[3]")
    assert "is a model already" in refusal("own_models:TAKEN", model_args='{"a": 1}')


def test_a_forward_pass_that_fails_tells_its_error_and_the_shape() -> None:
    told = refusal(inputs="7")
    assert "float32 [2, 7]" in told and "--input '7'" in told and "cannot be multiplied (2x7 and 6x8)" in told
    assert "give it with --vocab" in refusal("own_models:Words", "int64:5", model_args='{"vocab_size": 3}')
    outside = refusal("own_models:Words", "int64:5", vocabulary=90, model_args='{"vocab_size": 3}')
    assert "int64 [2, 5] (whole numbers below 90)" in outside and "IndexError" in outside


def test_a_model_that_is_too_large_is_refused_before_it_is_made() -> None:
    told = refusal("own_models:huge", "1000000")
    assert "does not fit" in told and "3.64 TiB of parameters" in told and "8 GiB are free" in told
    with pytest.raises(TooLarge, match=r"of activations for a batch of 100000000\), and 1 GiB are free") as refused:
        look_at(replace(PERCEPTRON, batch=100_000_000), free_bytes=1 << 30)
    found = refused.value
    assert 0 < found.fitting_batch < 100_000_000
    look_at(replace(PERCEPTRON, batch=found.fitting_batch), free_bytes=1 << 30)
    with pytest.raises(TooLarge):
        look_at(replace(PERCEPTRON, batch=2 * found.fitting_batch), free_bytes=1 << 30)
    with pytest.raises(TooLarge) as alone:
        look_at(ModelAsked("own_models:huge", "1000000"), free_bytes=1 << 33)
    advised = alone.value.advised("own_models:huge", 64)
    assert alone.value.fitting_batch == 0
    assert advised.sentence.startswith("It does not fit: one worker of own_models:huge")
    assert [one.workers for one in advised.sharded] == [2, 4, 8, 16]
    assert advised.sharded[0].optimiser_sharded_bytes > advised.sharded[-1].fully_sharded_bytes > 1 << 30


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    assert "--device cuda: this machine has no GPU" in refusal(device="cuda")


def test_numbers_and_settings_that_cannot_be() -> None:
    assert "--classes -1" in refusal(classes=-1) and "--batch 0" in refusal(batch=0)
    assert "tells 3 classes apart" in refusal("own_models:TAKEN", classes=9)
    assert "work element by element; there are: sgd" in refusal(optimiser="lbfgs")
    assert "'speed=3' is no setting; there are: lr" in refusal(optimiser="sgd:speed=3")
    assert "'fast' is neither a number" in refusal(optimiser="sgd:lr=fast")
    assert "Invalid learning rate" in refusal(optimiser="adam:lr=-1")
