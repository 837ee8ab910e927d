"""A replica that is divided over several ranks: each holds some stages, through which micro-batches flow.

rank 0  images --> stage 0 --- activations --> stage 1  rank 1 --> loss
                           <-- gradients ---
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.models.losses import Loss, scores_of
from lockstep.engine.pipelines.order import KINDS
from lockstep.engine.replica.base import Ready, flat_views
from lockstep.engine.replica.dropout import SampleKeys
from lockstep.engine.replica.pipeline.building import Built, group_of
from lockstep.engine.replica.pipeline.memory import PeakTensorMemory
from lockstep.engine.replica.pipeline.recording import Recorder, TimedAction
from lockstep.engine.replica.pipeline.schedules import make_schedule
from lockstep.engine.replica.pipeline.stage import Layers, TimedStage
from lockstep.engine.replica.pipeline.step_tables import action_rows, stage_rows
from lockstep.engine.replica.torch import MEMORY_FORMATS, TorchReplica
from lockstep.engine.resident_memory import reset_peak_rss

MEMORY_EXPERIMENT = "stage_memory"
"""The experiment whose steps run under torch's profiler: it counts bytes, too slowly for times to mean anything."""


class PipelineReplica(TorchReplica):
    """This rank's stages of `built`, behind the type that the training loop and every sync know.

    `parameters`, `gradients` and `buffers` are those of its own stages. All ranks of a pipeline are given the same
    batch; the first uses its images, the last its labels and weights. `backward` runs the whole schedule and is
    collective over the pipeline; the loss is that of the last stage, 0 elsewhere.

    A batch shorter than `share` (the last of an epoch) is filled up with samples of weight 0, so that all micro-batches
    are of one size: their gradients are zero.
    """

    def __init__(self, job: Job, built: Built, keys: SampleKeys, loss: Loss, device: str) -> None:
        self.mesh, self.cuts, self.built = built.mesh, built.cuts, built
        self._cleared = True
        place = torch.device(device)
        recomputed = job.activations == "recomputed"
        options = (place, job.precision, recomputed, MEMORY_FORMATS[job.memory_format])
        modules = [Layers(module, *options) for module in built.modules.values()]
        super().__init__(
            nn.ModuleList(modules),
            loss,
            device=device,
            precision=job.precision,
            seed=job.seed,
            memory_format=job.memory_format,
            layout=built.layout,
        )
        self.sharers, self.reads_images = built.mesh.pipeline, 0 in built.modules
        self.keys = keys  # of the whole model's dropout layers, numbered as the sequential model's
        self.share, self.micro_batches = job.global_batch_size // job.replicas, job.micro_batches
        self.recorder, self.idle_seconds = Recorder(place), 0.0
        self._loss_seconds, self.images_bytes = 0.0, 0
        self.rise = PeakTensorMemory() if job.experiment == MEMORY_EXPERIMENT else None
        group = group_of(built.mesh, device)
        self.stages: Sequence[TimedStage] = [
            TimedStage(module, index, job.stages, built.shapes[index], group, self.recorder, keys)
            for index, module in zip(built.modules, modules, strict=True)
        ]
        self.schedule = make_schedule(job.schedule, self.stages, job.micro_batches, self._weighted_loss)

    def peers(self, group: Group) -> Group:
        return self.mesh.peers

    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        super().rebind(parameters, adopt=adopt)
        if gradients is not None:
            # Micro-batches accumulate in `.grad`, which is therefore a view of the flat buffer. Hooks would copy each
            # micro-batch's gradient, and are not called by schedules that write gradients themselves (zero bubble).
            self._gradients, self._views = gradients, flat_views(gradients, self._trained)
            self.clear_gradients()

    @property
    def bound_gradients(self) -> Tensor | None:
        """The memory that a sync provided for gradients, or None."""
        return self._gradients

    def clear_gradients(self) -> None:
        if self._gradients is None:
            super().clear_gradients()
        self._cleared = True  # done by the next backward pass, because others may still be reading these gradients

    def _begin(self) -> None:
        """Zero the sync's buffer, if `clear_gradients` was called, and let gradients accumulate there."""
        if self._gradients is not None and self._cleared:
            self._gradients.zero_()
            for leaf, view in zip(self._trained, self._views, strict=True):
                leaf.grad = view
        self._cleared = False

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        reset_peak_rss()
        self.recorder.clear()
        losses: list[Tensor] = []
        images, target = self._prepare(batch, weights)
        self._begin()
        began = self.recorder.now()
        # All ranks begin a step together, so that its idle time is the bubble. This usually costs nothing, because the
        # first stage, which starts a step, is also the last to end one; it waits only for long updates elsewhere.
        self.mesh.pipeline.barrier()
        with self.recorder.listening(), self.rise.measuring() if self.rise else contextlib.nullcontext():
            if self.reads_images:
                self.schedule.step(images, target=target, losses=losses, return_outputs=False)
            else:
                self.schedule.step(target=target, losses=losses, return_outputs=False)
        self._account(self.recorder.now() - began)
        if on_ready is not None:
            for layer in reversed(range(len(self.layer_slices))):
                on_ready(layer)
        return float(sum(float(loss.detach()) for loss in losses))

    def _prepare(self, batch: Batch, weights: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Images on the device and, for the last stage, a row (label, weight) per sample; all filled up to `share`."""
        missing = self.share - len(batch)
        if missing < 0:
            raise ValueError(f"a batch of {len(batch)} samples for a pipeline made for {self.share}")
        ids = np.concatenate([batch.sample_ids, np.zeros(missing, np.int64)])
        size = self.share // self.micro_batches
        self.keys.epoch = batch.epoch
        for stage in self.stages:
            stage.sample_ids = [ids[i : i + size] for i in range(0, self.share, size)]
        images = torch.empty(0)
        if self.reads_images:
            given = torch.from_numpy(batch.images)
            images = torch.cat([given, torch.zeros(missing, *given.shape[1:])]) if missing else given
            images = images.to(self.device).contiguous()
            self.images_bytes = images.nbytes
        if not self.stages[-1].is_last:
            return images, None
        rows = np.stack([batch.labels.astype(np.float64), np.asarray(weights, np.float64)], axis=1)
        return images, torch.from_numpy(np.concatenate([rows, np.zeros((missing, 2))])).to(self.device)

    def _weighted_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of one micro-batch: the sum over its samples of weight x loss."""
        began = self.recorder.now()
        total = (self.loss(output, target[:, 0].long()) * target[:, 1].float()).sum()
        self._loss_seconds += self.recorder.now() - began
        return total

    def _account(self, elapsed: float) -> None:
        self.forward_seconds += self.recorder.seconds("forward") + self._loss_seconds
        self.backward_seconds += self.recorder.seconds(*KINDS[1:])
        # Everything else is waiting: for an activation, for a gradient, or for the others to begin.
        self.idle_seconds += elapsed - self.recorder.seconds(*KINDS) - self._loss_seconds
        self._loss_seconds = 0.0

    def stepped(self, exchange_seconds: float, update_seconds: float) -> None:
        ended = time.perf_counter()
        for name, seconds in (("update", update_seconds), ("exchange", exchange_seconds)):
            if seconds:
                self.recorder.actions.append(TimedAction(-1, -1, name, ended - seconds, ended))
            ended -= seconds

    def traced(self, held_bytes: int) -> dict[str, list[dict[str, float | str]]]:
        return {"stages": stage_rows(self, held_bytes), "actions": action_rows(self)}

    def predict(self, batch: Batch) -> Tensor:
        """The same result on every rank of the pipeline. Collective over it."""
        self.model.eval()
        try:
            with torch.no_grad():
                return self._predict(batch)
        finally:
            self._train()

    def _predict(self, batch: Batch) -> Tensor:
        """Runs the whole batch through one stage after the other, with the group's own messages."""
        own = {stage.stage_index: stage for stage in self.stages}
        pipeline, count = self.mesh.pipeline, self.stages[0].num_stages
        output = torch.from_numpy(batch.images).to(self.device)
        for index in range(count):
            source = self.stages[0].stage_index_to_group_rank[index]
            goal = self.stages[0].stage_index_to_group_rank.get(index + 1, source)
            if index in own:
                output = own[index].submod(output)
                if goal != source:
                    pipeline.send(output.float().cpu(), goal, f"predict {index}")
            if goal != source and pipeline.rank == goal:
                output = pipeline.receive(source, f"predict {index}")[1].to(self.device)
        scores = allgather_object(pipeline, output.float().cpu().numpy() if count - 1 in own else None)
        output = torch.from_numpy(next(each for each in scores if each is not None))
        return scores_of(output, getattr(self.loss, "of_probability", False))

    def whole(self, flat: Tensor) -> Tensor:
        return self._gather(flat, self.built.parameter_counts)

    def part_of(self, whole: Tensor) -> Tensor:
        return self._pick(whole, self.built.parameter_counts)

    def whole_buffers(self) -> Tensor:
        return self._gather(self.buffers, self.built.buffer_counts)

    def buffers_of(self, whole: Tensor) -> Tensor:
        return self._pick(whole, self.built.buffer_counts)

    def whole_others(self) -> dict[str, Tensor]:
        own = {name: each.cpu().clone() for name, each in self.others().items()}
        return {name: each for others in allgather_object(self.mesh.pipeline, own) for name, each in others.items()}

    def _gather(self, flat: Tensor, counts: list[int]) -> Tensor:
        """The pieces of all stages, in the order of the stages, which may differ from that of the ranks."""
        own = torch.split(flat.detach().cpu(), [counts[index] for index in self.built.modules])
        sent = {index: each.clone() for index, each in zip(self.built.modules, own, strict=True)}  # not all of `flat`
        everyones = allgather_object(self.mesh.pipeline, sent)
        by_stage = {index: piece for pieces in everyones for index, piece in pieces.items()}
        return torch.cat([by_stage[index] for index in sorted(by_stage)])

    def _pick(self, whole: Tensor, counts: list[int]) -> Tensor:
        if whole.numel() != sum(counts):
            raise ValueError(f"{whole.numel()} numbers for a model of {sum(counts)}")
        pieces = torch.split(whole, counts)
        return torch.cat([pieces[index] for index in self.built.modules])
