"""The reader's own model as a use case: loaded, tried on random data, and refused where it can't be trained.

Everything is told in the caller, before any worker starts: what is missing, what comes near a name, what the model
needs of memory (counted on torch's `meta` device, where nothing is allocated).
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.advisor.calibration import CalibratedModel, CalibrationError
from lockstep.advisor.measuring.choices import (
    classes_of,
    loss_named,
    optimiser_named,
    state_bytes_per_parameter,
    usual_loss,
    what_it_is,
)
from lockstep.advisor.measuring.inputs import LARGEST_VOCABULARY, inputs_text, parse_inputs
from lockstep.advisor.measuring.needed_memory import NeededMemory, SavedMemory, largest_layer_bytes, needed_memory
from lockstep.advisor.measuring.own_factory import OwnFactory, is_plain_row
from lockstep.advisor.measuring.references import checked_arguments, referred
from lockstep.engine.data.drawn import DrawnSamples, ModelInput
from lockstep.engine.models.losses import Loss
from lockstep.engine.replica.layout import TensorLayout
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.training.randomness import keeping_generators
from lockstep.engine.usecases import UseCase

CLASS_NAMES = ("classes", "num_classes", "n_classes", "num_labels")
VOCABULARY_NAMES = ("vocabulary", "vocab_size", "vocab", "num_embeddings", "num_tokens", "ntoken")
"""A factory's parameters that get --classes and --vocab."""
TRIED = 2  # samples of the first pass: batch normalization of one alone is impossible
_SAMPLES = 1 << 16  # of the set, which repeats a few
MORE = 8  # of a pass that tells how long each of them takes
_LONG_SECONDS = 0.5
NAME = "own"
"""Of the use case."""


@dataclass(frozen=True)
class ModelAsked:
    """A reader's model and how it is to be trained, as the command line says it."""

    model: str  # module:factory; a class or an instance of nn.Module will do, too
    inputs: str = "3,224,224"  # see `inputs.parse_inputs`
    model_args: str = "{}"  # of the factory, a JSON object
    classes: int = 0  # labels; 0: as many as the model's output tells apart
    vocabulary: int = 0  # of int64 inputs: whole numbers below it
    loss: str = ""  # as in lockstep.train, or module:function; empty: what fits the output's shape
    optimiser: str = ""  # adam:lr=0.001, or module:factory; empty: the library's usual SGD
    batch: int = 32  # samples per worker that the reader means to train with
    precision: str = "float32"
    seed: int = 0
    data: str = ""  # folder of photos whose decoding is timed
    device: str = "cpu"


@dataclass(frozen=True)
class OwnModel:
    """A model that was loaded and tried."""

    case: UseCase
    facts: CalibratedModel
    needed: NeededMemory | None  # None: the model can't be made without memory
    sequential: bool  # it is a plain nn.Sequential, which can be cut for a pipeline
    sample_seconds: float  # roughly, that each sample adds to a step of one thread


def load_case(asked: ModelAsked) -> UseCase:
    """The use case of the reader's model on random data, picklable; see `look_at`."""
    return look_at(asked).case


def look_at(asked: ModelAsked, free_bytes: int | None = None) -> OwnModel:
    """Load the model, count its memory, and train it on two random samples.

    `free_bytes`: what a worker may use; None: what is free on this machine. Raises CalibrationError for whatever can't
    be measured: see the issue's list in `tests/advisor/test_own_model.py`.
    """
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise CalibrationError(
            "--device cuda: this machine has no GPU that torch can use; leave it out, or calibrate on a machine with "
            "one and read its file with --from"
        )
    inputs = _checked_inputs(asked)
    factory = OwnFactory(asked.model, _arguments(asked), inputs)
    optimiser, own_loss = optimiser_named(asked.optimiser), loss_named(asked.loss) if asked.loss else None
    needed = needed_memory(factory, state_bytes_per_parameter(optimiser))
    _check_memory(needed, asked, free_bytes)
    with keeping_generators():
        torch.manual_seed(asked.seed)
        model = _made(factory, asked)
        samples = DrawnSamples(inputs, max(asked.classes, 2), asked.vocabulary, _SAMPLES, asked.seed, "own")
        with SavedMemory(model) as saved:
            output = _tried(model, samples, asked, TRIED)
        if needed is not None:
            needed = replace(needed, saved_bytes=-(-saved.bytes * asked.batch // TRIED))
            _check_memory(needed, asked, free_bytes)
        name = asked.loss or usual_loss(output)
        samples = replace(samples, kinds=_labels(output, name, asked))
        loss = own_loss or loss_named(name)
        _train_once(model, output, samples, loss, asked.model, name)
        seconds = _sample_seconds(model, samples, asked)
    case = UseCase(NAME, factory, optimiser, loss, train=samples)
    return OwnModel(case, _facts(model, asked, factory, name, optimiser), needed, is_plain_row(model), seconds)


def _check_memory(needed: NeededMemory | None, asked: ModelAsked, free_bytes: int | None) -> None:
    if needed is not None and asked.device == "cpu":
        needed.check(free_bytes, asked.model, asked.batch)


def _checked_inputs(asked: ModelAsked) -> tuple[ModelInput, ...]:
    inputs = parse_inputs(asked.inputs)
    for name, value in (("--classes", asked.classes), ("--vocab", asked.vocabulary), ("--batch", asked.batch - 1)):
        if value < 0:
            number = asked.batch if name == "--batch" else value
            raise CalibrationError(f"{name} {number} is not possible; give a whole number of at least 1")
    whole = [each for each in inputs if each.dtype == "int64"]
    if whole and not asked.vocabulary:
        raise CalibrationError(
            f"--input {str(whole[0])!r} takes whole numbers below some size; give it with --vocab (such as 30522)"
        )
    if asked.vocabulary > LARGEST_VOCABULARY:
        raise CalibrationError(f"--vocab {asked.vocabulary} is not possible; give at most {LARGEST_VOCABULARY}")
    return inputs


def _arguments(asked: ModelAsked) -> str:
    """The arguments of the factory as canonical JSON. Raises CalibrationError."""
    try:
        given = json.loads(asked.model_args or "{}")
    except json.JSONDecodeError as error:
        raise CalibrationError(f"--model-args {asked.model_args!r} is no JSON ({error}); such as {_SUCH_AS}") from None
    if not isinstance(given, dict):
        raise CalibrationError(f"--model-args {asked.model_args!r} is no JSON object; such as {_SUCH_AS}")
    found = referred(asked.model)
    if isinstance(found, nn.Module) and not inspect.isclass(found):
        if given:
            raise CalibrationError(f"--model-args {asked.model_args!r}: {asked.model} is a model already, no factory")
        return "{}"
    if not callable(found):
        raise CalibrationError(
            f"--model {asked.model!r} is a {type(found).__name__}; name a function or class that makes an nn.Module"
        )
    numbers = {CLASS_NAMES: asked.classes, VOCABULARY_NAMES: asked.vocabulary}
    return json.dumps(checked_arguments(found, given, numbers, asked.model), sort_keys=True)


_SUCH_AS = '\'{"classes": 10}\''


def _made(factory: OwnFactory, asked: ModelAsked) -> nn.Module:
    try:
        model = factory()
    except CalibrationError:
        raise
    except MemoryError as error:
        raise CalibrationError(f"--model {asked.model!r} does not fit: {error}") from error
    except Exception as error:
        arguments = "" if factory.arguments == "{}" else f" with {factory.arguments}"
        raise CalibrationError(
            f"--model {asked.model!r}{arguments} fails with {type(error).__name__}: {error}"
        ) from error
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CalibrationError(f"--model {asked.model!r} has no parameter to train; let requires_grad be True")
    try:
        TensorLayout.of(model).check_trainable()
    except ValueError as error:
        raise CalibrationError(f"--model {asked.model!r}: {error}") from error
    return model


def _tried(model: nn.Module, samples: DrawnSamples, asked: ModelAsked, count: int) -> Any:
    """What the model returns for so many samples in training. Raises CalibrationError with its own error."""
    device = torch.device(asked.device)
    images = torch.from_numpy(samples.load(torch.arange(count).numpy(), 0, 0)).to(device)
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=asked.precision == "bfloat16"):
            return model.to(device).train()(images)
    except Exception as error:
        shapes = " and ".join(f"{each.dtype} {[count, *each.shape]}" for each in samples.inputs)
        hint = f" (whole numbers below {asked.vocabulary})" if asked.vocabulary else ""
        raise CalibrationError(
            f"--model {asked.model!r}: a forward pass on {shapes}{hint}, that is --input {asked.inputs!r} with "
            f"{count} samples, fails with {type(error).__name__}: {error}"
        ) from error


def _sample_seconds(model: nn.Module, samples: DrawnSamples, asked: ModelAsked) -> float:
    """Three times what each further sample adds to a forward pass: a backward pass takes about twice as long."""
    seconds: dict[int, float] = {}
    with torch.no_grad():
        for count in (TRIED, MORE, TRIED, MORE):
            began = time.perf_counter()
            _tried(model, samples, asked, count)
            seconds[count] = min(seconds.get(count, math.inf), time.perf_counter() - began)
            if seconds[TRIED] > _LONG_SECONDS:  # what all samples share does not count beside that
                return 3 * seconds[TRIED] / TRIED * torch.get_num_threads()
    each = (seconds[MORE] - seconds[TRIED]) / (MORE - TRIED)
    return 3 * max(each, 0.0) * torch.get_num_threads()


def _labels(output: Any, loss: str, asked: ModelAsked) -> int:
    """How many labels there are. Raises CalibrationError for more than the output tells apart."""
    told = classes_of(output)
    if loss == "cross_entropy" and asked.classes > told:
        raise CalibrationError(
            f"--classes {asked.classes}: the model returns {what_it_is(output)}, which tells {told} classes apart"
        )
    return max(2, asked.classes or told)


def _train_once(model: nn.Module, output: Any, samples: DrawnSamples, loss: Loss, name: str, loss_name: str) -> None:
    """The loss of `output` and a backward pass. Raises CalibrationError where it fails or gives no finite number."""
    labels = torch.from_numpy(samples.labels[:TRIED]).to(next(model.parameters()).device)
    try:
        found = loss(output, labels)
    except Exception as error:
        raise CalibrationError(
            f"no loss for the output's shape: the model returns {what_it_is(output)}, with which {loss_name} fails "
            f"({type(error).__name__}: {error}); name another one with --loss"
        ) from error
    if not isinstance(found, Tensor) or found.shape != (TRIED,):
        raise CalibrationError(
            f"--loss {loss_name!r} gives {what_it_is(found)} for {TRIED} samples, whose output is "
            f"{what_it_is(output)}; let it give one value per sample (of torch's own losses, with reduction='none')"
        )
    try:
        total = found.mean()
        total.backward()
    except Exception as error:
        raise CalibrationError(f"a backward pass fails with {type(error).__name__}: {error}") from error
    sums = {name: float(p.grad.sum()) for name, p in model.named_parameters() if p.grad is not None}
    wrong = [f"the gradient of {place}" for place, each in sums.items() if not math.isfinite(each)]
    wrong = wrong if math.isfinite(float(total.detach())) else [f"the loss, {float(total.detach())},"]
    if wrong:
        raise CalibrationError(
            f"--model {name!r}: {wrong[0]} is no finite number in the first pass, on random numbers of mean 0 and "
            "deviation 1; the time of such training means nothing: look at its initialization and its divisions"
        )


def _facts(
    model: nn.Module, asked: ModelAsked, factory: OwnFactory, loss: str, optimiser: OptimiserFactory
) -> CalibratedModel:
    trained = [each for each in model.parameters() if each.requires_grad]
    parameters = sum(each.numel() for each in trained)
    return CalibratedModel(
        name=asked.model,
        arguments=factory.arguments,
        framework="keras" if _is_keras(model) else "torch",
        inputs=inputs_text(factory.inputs),
        loss=loss,
        optimiser=asked.optimiser or optimiser_text(optimiser),
        parameters=parameters,
        gradient_bytes=sum(each.numel() * each.element_size() for each in trained),
        buffer_bytes=sum(each.numel() * each.element_size() for each in model.buffers()),
        optimiser_bytes=round(state_bytes_per_parameter(optimiser) * parameters),
        largest_layer_bytes=largest_layer_bytes(model),
    )


def optimiser_text(optimiser: OptimiserFactory) -> str:
    """The optimizer with its settings, such as sgd:lr=0.001,momentum=0.9."""
    assert isinstance(optimiser, functools.partial)
    settings = ",".join(f"{name}={value}" for name, value in optimiser.keywords.items() if name != "fused")
    return f"{optimiser.func.__name__.lower()}:{settings}"  # type: ignore[attr-defined]


def _is_keras(model: nn.Module) -> bool:
    return any(type(module).__module__.partition(".")[0] == "keras" for module in model.modules())
