"""What is trained: the batch, the network, how it learns, and what it is scored on."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.job.cut import Cut
from lockstep.engine.options import JobError, choice, option

HOLDING_OUT = ("held_out", "validation")
"""Of `scored_on`: a fifth of the training images is kept for validation. With `held_out` no test image is opened."""


@dataclass(frozen=True)
class What(Cut):
    """Batches, and for use cases with small images the network and how it learns."""

    global_batch_size: int = option(32, "images of a step, over all workers", least=1)
    per_worker_batch_size: int = option(32, "images of a step for each worker", least=1)
    network: str = choice("default", "cnn", "convlstm", "convlstm2d", help="default: the use case's own")
    pooling: str = choice("default", "max", "average", "none", help="of the CNN; default: the network's own (max)")
    dropout: float = option(0.0, "share of activations, after each pooling and before the output", least=0, below=1)
    weight_decay: float = option(0.0, "L2: times the parameters, added to the gradient", least=0)
    batch_norm: bool = option(False, "after each convolution; by its own share's statistics unless sync_batch_norm")
    class_weights: str = choice(
        "none", "balanced", help="balanced: a sample counts images / (classes x images of its class)"
    )
    augmentation: str = choice(
        "default", "none", "flip", "shift", "affine", help="of training images; default: the use case's own"
    )
    standardise: bool = option(False, "each image to mean 0 and standard deviation 1: an X-ray's exposure is arbitrary")
    learning_rate: float = option(0.0, "0: the use case's own", least=0)
    learning_rate_rule: str = choice("constant", "linear", help="linear: times global batch / 32")
    learning_rate_decay: str = choice("none", "cosine", help="cosine: to 0 over all steps")
    rate_warmup_epochs: int = option(0, "epochs in which the rate grows from 0, step by step", least=0)
    epochs: int = option(0, "whole epochs instead of warmup_steps + steps", least=0)
    updates: int = option(0, "optimiser steps instead of epochs", least=0)
    scored_on: str = choice(
        "none",
        "held_out",
        "validation",
        "test",
        help="held_out: a fifth of the training images; validation: these, and test; test: all are trained on",
    )
    early_stopping_epochs: int = option(
        0, "epochs without a lower validation loss that are waited for; 0: never stop early", least=0
    )

    @property
    def holds_out(self) -> bool:
        """Is a fifth of the training images kept for validation?"""
        return self.scored_on in HOLDING_OUT

    @property
    def learns(self) -> bool:
        """Does this train for whole epochs or a number of updates, not for a number of measured steps?"""
        return bool(self.epochs or self.updates)

    @property
    def synchronous(self) -> bool:
        """Does this train as one worker would: the same parameters up to rounding, whatever the workers?

        Where parameters are averaged in every step, that holds for optimisers that are linear in the gradient (SGD).
        """
        # Statistics of a worker's share, or of a micro-batch, are not those of the global batch.
        shared = not self.batch_norm or self.workers == 1 or self.values["sync_batch_norm"]
        return shared and (self.declared_sync is None or self.declared_sync.equality(self.values).equal)

    @property
    def averages_parameters(self) -> bool:
        """Does every worker step on parameters of its own, which are averaged?"""
        return self.declared_sync is not None and self.declared_sync.averages_parameters(self.values)

    def check(self) -> None:
        super().check()
        if self.model_parallel == "pipeline":
            self._check_pipelined()
        if self.declared_sync is not None and not self.declared_sync.learns:
            self.refuse_changed(
                *OF_LEARNING, why=f"is not built for sync={self.sync!r}; give another sync and launcher"
            )
        self._check_scores()

    def _check_pipelined(self) -> None:
        if self.batch_norm:
            raise JobError(
                "batch_norm=True with model_parallel='pipeline': statistics would be of micro-batches, and of the "
                "samples that fill up a short one; give batch_norm=False, or model_parallel='none'"
            )
        if self.global_batch_size % (self.replicas * self.micro_batches):
            raise JobError(
                f"global_batch_size={self.global_batch_size} can't be split over {self.replicas} replica(s) x "
                f"{self.micro_batches} micro-batches; give a multiple of {self.replicas * self.micro_batches}"
            )

    def _check_scores(self) -> None:
        if self.epochs and self.updates:
            raise JobError(
                f"epochs={self.epochs} and updates={self.updates} both say how long to train; give one of them"
            )
        if self.epochs and self.rate_warmup_epochs > self.epochs:
            raise JobError(
                f"rate_warmup_epochs={self.rate_warmup_epochs} with epochs={self.epochs}: the rate would never reach "
                f"its full height; give at most {self.epochs}"
            )
        if self.scored_on != "none" and not self.learns:
            raise JobError(f"scored_on={self.scored_on!r} needs an end of training; give epochs or updates")
        if not self.early_stopping_epochs:
            return
        given = f"early_stopping_epochs={self.early_stopping_epochs}"
        if not self.holds_out:
            raise JobError(f"{given} with scored_on={self.scored_on!r}: it looks at validation loss; give 'validation'")
        if not self.epochs:
            raise JobError(f"{given} with updates={self.updates}: it counts epochs; give epochs instead of updates")


OF_LEARNING: tuple[str, ...] = tuple(name for name in What.__annotations__ if not name.endswith("batch_size"))
"""Options of networks for small images, and of training until they have learnt."""
