"""Micro-batches that workers pull from a pool, and clones of shares from the start."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.rounds import even
from lockstep.engine.policies.shares import HeldShare, SharesPolicy


@dataclass(frozen=True)
class PullingOptions:
    copies: int = option(0, "of a micro-batch that free workers compute when all are given out", least=0)


class Pulling(SharesPolicy):
    """Dynamic data sharding: Zhou et al. 2019, ElasticDL, and Wang et al. 2023, DLRover: workers ask for the next
    shard of the data when they are done, so that fast ones do more; FlexRR moves work within a step likewise
    (reference 29 of DPro-SM). An update is made when the global batch has been computed. A "task" of MapReduce is a
    micro-batch, and with copies they are the backup tasks of Dean and Ghemawat 2004: at the end, whoever is free
    computes what has been under way the longest once more.

    Every micro-batch costs a message in each direction. Without micro-batches it is wait_for_all.
    """

    does = "workers pull micro-batches until the global batch is done"
    label = "pulling from a pool"
    Options = PullingOptions

    @property
    def survives_loss(self) -> int:
        """A share may lie with one worker more than there are copies."""
        return min(int(self.options.copies), self.workers - 1)

    def cut(self, samples: int) -> list[int]:
        size = self.setting.micro_batch
        if not size:
            return list(even(samples, self.setting.training).tolist())
        full, rest = divmod(samples, size)
        return [size] * full + [rest]

    def copy_for(self, worker: int, now: float) -> HeldShare | None:
        del worker, now
        if not self.options.copies:
            return None
        found = [share for share in self.shares if share.done is None and len(share.holders) <= self.options.copies]
        return min(found, key=lambda share: (len(share.holders), min(share.holders.values())), default=None)


@dataclass(frozen=True)
class CloningOptions:
    clones: int = option(2, "workers that compute each share", least=1)


class Cloning(SharesPolicy):
    """Dolly: Ananthanarayanan et al. 2013, "Effective straggler mitigation: attack of the clones" (reference 45 of
    DPro-SM): small jobs run every task several times from the start, and take what comes first. A "task" of MapReduce
    is a share of the global batch, of which there are workers / clones; the clones of a share are recalled when the
    first one has come. An update costs `clones` times the computing."""

    does = "every share is computed by several workers from the start; the first copy counts"
    label = "cloning (Dolly)"
    Options = CloningOptions

    def check_setting(self) -> None:
        if self.options.clones > self.workers:
            clones = self.options.clones
            raise JobError(f"clones={clones} need as many workers, and there are {self.workers}; give fewer")

    @property
    def survives_loss(self) -> int:
        return int(self.options.clones) - 1

    def cut(self, samples: int) -> list[int]:
        return list(even(samples, self.workers // self.options.clones).tolist())

    def copy_for(self, worker: int, now: float) -> HeldShare | None:
        """Only as the round begins: the share with the fewest clones."""
        del worker, now
        if self.done:
            return None
        return min((share for share in self.shares if share.done is None), key=lambda share: len(share.holders))
