"""How a model is cut over ranks: stages, replicas, micro-batches, and the order of a pipeline's work."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine import registry
from lockstep.engine.job.where import Where
from lockstep.engine.options import JobError, choice, option

_ONE_STAGE_PER_RANK = ("naive", "gpipe", "1f1b")
_ROUNDS = ("interleaved_1f1b", "zero_bubble")
_SPLIT_BACKWARD = ("zero_bubble", "zero_bubble_v")


@dataclass(frozen=True)
class Cut(Where):
    """What of the model is on which rank."""

    model_parallel: str = choice("none", "pipeline", "head", help="what of the model is split over ranks")
    stages: int = option(1, "stages of the whole model", least=1)
    stages_per_rank: int = option(1, "stages on each rank", least=1)
    micro_batches: int = option(1, "micro-batches of each replica's share of a step", least=1)
    schedule: str = choice(
        "none", "naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v",
        help="the order of micro-batches in a pipeline; naive: the whole batch, one stage after another",
    )  # fmt: skip
    partition: str = choice(
        "none", "balanced", "equal_layers", "equal_parameters",
        help="where the model is cut; balanced: by measured times",
    )  # fmt: skip
    activations: str = choice("kept", "recomputed", help="for the backward pass; recomputed: activation checkpointing")
    stage_memory_bytes: int = option(0, "no stage of partition='balanced' may need more; 0: no bound", least=0)

    @property
    def pipeline_ranks(self) -> int:
        """Ranks that one pipeline is spread over; rank = replica * pipeline_ranks + place in the pipeline."""
        return self.stages // self.stages_per_rank

    @property
    def replicas(self) -> int:
        """Copies of the whole model: those that share out the global batch."""
        return self.workers // self.pipeline_ranks

    def check(self) -> None:
        super().check()
        given = f"model_parallel={self.model_parallel!r}"
        if self.model_parallel != "pipeline":
            self.refuse_changed(*OF_PIPELINES, why=f"does nothing with {given}; give model_parallel='pipeline'")
        if self.model_parallel == "none":
            return
        if self.declared_launcher is not None and not self.declared_launcher.process_per_worker:
            raise JobError(
                f"launcher={self.launcher!r} with {given}: torch.distributed needs a process per rank; give "
                "'processes', 'mpiexec' or 'engines'"
            )
        if self.servers or self.host_workers != "processes":
            raise JobError(
                f"{given} with servers={self.servers}, host_workers={self.host_workers!r}: only servers=0 and "
                "host_workers='processes' are possible"
            )
        if self.model_parallel == "head":
            self._check_head()
        else:
            self._check_stages()
            self._check_replicas()
            self._check_schedule()

    def _check_head(self) -> None:
        sync = self.declared_sync
        if sync is None or not sync.sums_common_part or self.compression != "none":
            able = [name for name, each in registry.syncs_and_peers().items() if each.sums_common_part]
            raise JobError(
                f"model_parallel='head' with sync={self.sync!r}, compression={self.compression!r}: ranks hold "
                f"different parts, and only sync={' or '.join(map(repr, able))} sums the common ones, uncompressed"
            )

    def _check_stages(self) -> None:
        if self.schedule == "none" or self.partition == "none":
            schedules, partitions = (self.options()[name].choices[1:] for name in ("schedule", "partition"))
            raise JobError(
                f"model_parallel='pipeline' with schedule={self.schedule!r}, partition={self.partition!r}: give one of "
                f"{', '.join(schedules)} and one of {', '.join(partitions)}"
            )
        if self.stages < 2 or self.stages % self.stages_per_rank or self.stages == self.stages_per_rank:
            raise JobError(
                f"stages={self.stages} with stages_per_rank={self.stages_per_rank}: give a multiple of it, so that "
                "there are two ranks or more"
            )
        if self.stage_memory_bytes and self.partition != "balanced":
            raise JobError(
                f"stage_memory_bytes={self.stage_memory_bytes} does nothing with partition={self.partition!r}; give "
                "partition='balanced'"
            )

    def _check_replicas(self) -> None:
        if self.workers % self.pipeline_ranks:
            raise JobError(
                f"workers={self.workers} can't be split into pipelines of {self.pipeline_ranks} ranks "
                f"(stages={self.stages}, stages_per_rank={self.stages_per_rank}): {self.workers % self.pipeline_ranks} "
                f"would be left over; give a multiple of {self.pipeline_ranks}"
            )
        sync = self.declared_sync
        if self.replicas == 1 and (sync is None or not sync.alone):
            raise JobError(
                f"sync={self.sync!r} has nobody to agree with: one replica of {self.stages} stages; give 'local'"
            )
        if self.replicas > 1 and (sync is None or not sync.between_replicas):
            able = [name for name, each in registry.syncs_and_peers().items() if each.between_replicas]
            raise JobError(
                f"sync={self.sync!r} can't agree {self.replicas} replicas of a pipeline; give one of {', '.join(able)}"
            )

    def _check_schedule(self) -> None:
        """What the schedule itself asks for (see `lockstep.engine.replica.pipeline.schedules`)."""
        given = f"schedule={self.schedule!r}"
        per_rank, micro_batches = f"stages_per_rank={self.stages_per_rank}", f"micro_batches={self.micro_batches}"
        if self.schedule in _ONE_STAGE_PER_RANK and self.stages_per_rank != 1:
            raise JobError(f"{given} with {per_rank}: it has one stage on each rank; give 1")
        if self.schedule == "interleaved_1f1b" and self.stages_per_rank == 1:
            raise JobError(f"{given} with {per_rank} is '1f1b'; give stages_per_rank=2 or more")
        if self.schedule == "zero_bubble_v" and self.stages_per_rank != 2:
            raise JobError(f"{given} with {per_rank}: its V has two stages per rank; give 2")
        if self.schedule == "naive" and self.micro_batches != 1:
            raise JobError(f"{given} with {micro_batches}: naive means the whole batch at once; give 1")
        if self.schedule == "1f1b" and self.micro_batches < self.stages:
            raise JobError(f"{given} with {micro_batches} for stages={self.stages}: give at least {self.stages}")
        rounds = max(1, self.micro_batches // self.pipeline_ranks)
        if self.schedule in _ROUNDS and self.micro_batches % rounds:
            raise JobError(
                f"{given} with {micro_batches}: not a multiple of its {rounds} rounds of {self.pipeline_ranks} ranks; "
                f"give a multiple of {self.pipeline_ranks}"
            )
        if self.schedule in _SPLIT_BACKWARD and self.activations == "recomputed":
            raise JobError(
                f"{given} with activations='recomputed': its backward pass is in two halves, and each would recompute "
                "them; give another schedule, or activations='kept'"
            )


OF_PIPELINES: tuple[str, ...] = tuple(name for name in Cut.__annotations__ if name != "model_parallel")
"""Options that model_parallel='pipeline' alone reads."""
