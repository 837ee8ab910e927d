"""The convolutional network of *ConvLSTM-D-Accel*'s Table 2 as a problem of simulated training, on the same X-rays.

*DPro-SM* trains "a CNN" on these images and says no more of it; Table 2 is by the same authors, for the same images. It
has some 25 times the parameters of the small network, and a gradient takes a hundred times as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site
from lockstep.engine.training.replicas import torch_replica
from lockstep.engine.usecases import use_case
from lockstep.experiments.e11_straggler_mitigation.learners import Images, Labels, images_of

Floats = NDArray[np.float64]

JUDGED = 128
"""Training images over which the loss is taken, as many as four updates have."""


class PaperNetwork:
    """Parameters are one vector, drawn with the job's seed; `samples` images, in float32 as on real ranks."""

    def __init__(self, job: Job, group: Group, images: Images, labels: Labels) -> None:
        self._replica = torch_replica(use_case(job.use_case).for_job(job), job, group)
        self._images, self._labels = images, labels
        self.samples = len(labels)
        self.start = self._replica.parameters.numpy().astype(np.float64)
        self._judged = np.random.default_rng([job.seed, self.samples]).permutation(self.samples)[:JUDGED]

    def gradient(self, parameters: Floats, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """Of the mean loss over these samples, float64 [parameters], and the loss itself."""
        self._put(parameters)
        self._replica.clear_gradients()
        loss = self._replica.backward(self._batch(ids), np.full(len(ids), 1 / len(ids)))
        return self._replica.gradients.numpy().astype(np.float64), loss

    def loss(self, parameters: Floats) -> float:
        """Over `JUDGED` training images."""
        self._put(parameters)
        batch = self._batch(self._judged)
        scores = self._replica.predict(batch).numpy().astype(np.float64)
        own = scores[np.arange(len(batch)), batch.labels]
        return float(np.mean(np.logaddexp.reduce(scores, axis=1) - own))

    def accuracy(self, parameters: Floats, images: Images, labels: ArrayLike) -> float:
        """Share of other images that are told right, 0 to 1."""
        self._put(parameters)
        known = np.asarray(labels, np.int64)
        scores = self._replica.predict(Batch(images, known, np.arange(len(known)), 0)).numpy()
        return float((scores.argmax(axis=1) == known).mean())

    def _batch(self, ids: NDArray[np.int64]) -> Batch:
        return Batch(self._images[ids], self._labels[ids], ids, 0)

    def _put(self, parameters: Floats) -> None:
        self._replica.parameters.numpy()[:] = parameters


def paper_problem_of(job: Job, group: Group, site: Site) -> tuple[PaperNetwork, Images, Labels]:
    """The network on the job's images with the job's seed; images and labels for testing."""
    images, labels, test, test_labels = images_of(job, site)
    return PaperNetwork(job, group, images, labels), test, test_labels
