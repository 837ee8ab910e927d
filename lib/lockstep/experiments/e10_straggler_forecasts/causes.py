"""Two causes that *DPro-SM* names, measured on this machine: gradients that vanish, and decoding of images.

A number below 1.2e-38 is *denormal* in float32: many processors compute with it by microcode, a hundred times as
slowly, unless they are told to take it for zero (`torch.set_flush_denormal`), as every worker of this library is. That
is the one way known to us in which a vanishing gradient could make a worker slow.

Seconds are those of the processor, one core at work: what other programs take meanwhile is not among them.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from lockstep.engine.data.photos import MEAN, STD
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Photos
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.models.convlstm import build_network
from lockstep.engine.models.layers import SIZE, Network
from lockstep.engine.models.losses import binary_cross_entropy
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import use_case

Row = dict[str, Any]
EXPONENTS = (0, -10, -20, -30, -36, -38, -40, -42, -44)
"""Gradients are drawn from a standard normal distribution and multiplied by ten to the power of each of these."""
SMALLEST_NORMAL = float(torch.finfo(torch.float32).tiny)
SIGMOID = "sigmoid"
DEPTHS = (5, 10, 20, 30, 40, 45, 50, 60, 80)
"""Convolutions with a sigmoid behind each: the networks for which vanishing gradients are known."""
NETWORKS = ("cnn", "convlstm")
"""The use case's own."""
WORKERS, BATCH, CHANNELS, SIDE = 8, 4, 8, 12
WHOLE, REDUCED = "all pixels", "reduced"
WAYS = (WHOLE, REDUCED)
"""As image libraries decode by default; and at 1/2, 1/4 or 1/8 of the size, as JPEG allows and this library does."""
PARTS = ("read", "decode", "scale", "normalise")
IMAGES = 64


def run_vanishing(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Seconds of backward passes with ever smaller gradients: tables `denormals` and `gradients`."""
    del site
    group.enter("compute")
    scales = denormal_rows(job.steps, job.seed)
    networks = [(SIGMOID, depth) for depth in DEPTHS] + [(name, 0) for name in NETWORKS]
    rows: list[Row] = []
    for name, depth in networks:
        group.enter("compute")
        rows += gradient_rows(name, depth, job.steps, job.seed)
    whole = sum(row["seconds"] for row in scales)
    return Trace(group.rank, scores={"step_seconds": whole}, tables={"denormals": scales, "gradients": rows})


@contextmanager
def flushing(wanted: bool) -> Iterator[None]:
    """Denormal numbers are taken for zero in this thread, or not; afterwards as before, which torch does not tell."""
    before = bool((torch.full((1,), SMALLEST_NORMAL) * 0.5 == 0).item())
    torch.set_flush_denormal(wanted)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def denormal_rows(repetitions: int, seed: int) -> list[Row]:
    """A convolution's backward pass: exponent, flushed (0 | 1), seconds (the median of so many repetitions).

    Each is timed right after an untimed one like it, and their order is drawn anew in each repetition: what follows a
    pass of 70 ms in microcode is slower for some passes, and always was the same one's neighbor.
    """
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(8, 16, 28, 28, generator=random).requires_grad_()
    weights = (0.05 * torch.randn(16, 16, 3, 3, generator=random)).requires_grad_()
    output = functional.conv2d(images, weights, padding=1)
    drawn = torch.randn(output.shape, generator=random)
    with flushing(False):
        gradients = {exponent: drawn * 10.0**exponent for exponent in EXPONENTS}
    cases = [(exponent, flushed) for flushed in (0, 1) for exponent in gradients]
    taken: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for _ in range(repetitions):
        for place in torch.randperm(len(cases), generator=random).tolist():
            exponent, flushed = cases[place]
            with flushing(bool(flushed)):
                backward = partial(torch.autograd.grad, output, (images, weights), gradients[exponent], True)
                backward()
                taken[exponent, flushed].append(_timed(backward))
    return [
        {"exponent": exponent, "flushed": flushed, "seconds": float(np.median(seconds))}
        for (exponent, flushed), seconds in taken.items()
    ]


def gradient_rows(name: str, depth: int, repetitions: int, seed: int) -> list[Row]:
    """A network's gradients for the images of eight workers with equal parameters, and how long these take.

    Columns: name, depth (0: the use case's own network), worker, first_gradient and last_gradient (mean absolute
    value of the first and the last layer's weights'), denormal_share (of all weights'), seconds and flushed_seconds
    (the shortest of so many repetitions).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = sigmoid_network(depth) if name == SIGMOID else build_network(Network(name, channels=1))
        shape = (CHANNELS, SIDE, SIDE) if name == SIGMOID else (1, SIZE, SIZE)
        batches = torch.rand(WORKERS, BATCH, *shape)
    labels = torch.arange(BATCH) % 2
    weights = [each for each in model.parameters() if each.dim() > 1]
    seconds = np.full((2, WORKERS), np.inf)
    facts: list[Row] = [{} for _ in range(WORKERS)]
    for _ in range(repetitions):
        for flushed in (0, 1):
            with flushing(bool(flushed)):
                for worker, images in enumerate(batches):
                    output = model(images)
                    loss = output.mean() if name == SIGMOID else binary_cross_entropy(output, labels).mean()
                    model.zero_grad()
                    seconds[flushed, worker] = min(seconds[flushed, worker], _timed(loss.backward))
                    if not flushed:
                        facts[worker] = _facts([each.grad for each in weights if each.grad is not None])
    cell = {"name": name, "depth": depth}
    return [
        {**cell, "worker": worker, **facts[worker], "seconds": float(own), "flushed_seconds": float(quick)}
        for worker, (own, quick) in enumerate(seconds.T)
    ]


def sigmoid_network(depth: int) -> nn.Sequential:
    """`depth` convolutions of 3 x 3 with a sigmoid behind each, initialised as torch does."""
    layers = [layer for _ in range(depth) for layer in (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.Sigmoid())]
    return nn.Sequential(*layers)


def _facts(gradients: list[Tensor]) -> Row:
    sizes = [each.abs() for each in gradients]
    every = torch.cat([each.flatten() for each in sizes])
    denormal = (every > 0) & (every < SMALLEST_NORMAL)
    first, last = (float(each.double().mean()) for each in (sizes[0], sizes[-1]))
    return {"first_gradient": first, "last_gradient": last, "denormal_share": float(denormal.double().mean())}


def _timed(compute: Callable[[], Any]) -> float:
    began = time.process_time()
    compute()
    return time.process_time() - began


def run_input_parts(job: Job, group: Group, site: Site | None = None) -> Trace:
    """What each part of the input takes on one core, image by image: the table `input_parts`.

    Columns: way, part, milliseconds (of an image), megapixels. Files come from the page cache, not from a disk.
    """
    assert site is not None
    group.enter("input")
    data = use_case(job.use_case).for_job(job).open("train", site.data_root, job.images, site.skipped)
    photos = data.photos if isinstance(data, SmallImages) else data
    assert isinstance(photos, Photos)
    chosen = np.random.default_rng(job.seed).permutation(len(photos))[:IMAGES]
    paths = [Path(photos.path(int(place))) for place in chosen]
    for path in paths:
        path.read_bytes()
    rows: list[Row] = []
    size = data.shape[-1]
    for way in WAYS:
        group.enter("input")
        parts = np.array([image_seconds(path, size, way == REDUCED) for path in paths])
        mean = parts.mean(axis=0)
        megapixels = float(np.mean([_pixels(path) for path in paths]) / 1e6)
        rows += [
            {"way": way, "part": part, "milliseconds": 1e3 * float(seconds), "megapixels": megapixels}
            for part, seconds in zip(PARTS, mean, strict=True)
        ]
    whole = sum(row["milliseconds"] for row in rows) * len(paths) / 1e3
    return Trace(group.rank, scores={"step_seconds": whole}, tables={"input_parts": rows})


def image_seconds(path: Path, size: int, reduced: bool) -> tuple[float, ...]:
    """Seconds of PARTS for one image: from its file to the centre square of `size` pixels, float32, normalised.

    The same steps as `lockstep.engine.data.photos.decode_photo`, where decoding and scaling are one call.
    """
    times = [time.process_time()]
    content = path.read_bytes()
    times.append(time.process_time())
    with Image.open(io.BytesIO(content)) as image:
        if reduced:
            image.draft("RGB", (size, size))
        image.load()
        times.append(time.process_time())
        side = min(image.size)
        left, top = ((length - side) / 2 for length in image.size)
        plain = image if image.mode in ("RGB", "L") else image.convert("RGB")
        square = plain.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + side, top + side), 2.0)
        pixels = square.convert("RGB")
    times.append(time.process_time())
    scaled = np.asarray(pixels, np.float32) / np.float32(255)
    normalised = (scaled - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    np.ascontiguousarray(normalised.transpose(2, 0, 1))
    times.append(time.process_time())
    return tuple(np.diff(times).tolist())


def _pixels(path: Path) -> int:
    with Image.open(path) as image:
        return image.width * image.height
