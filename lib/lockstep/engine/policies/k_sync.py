"""The first k of n contributions make an update; nobody waits for the others.

Chen et al. 2017, "Revisiting distributed synchronous SGD" (reference 41 of DPro-SM): n = k + b workers with b backups;
Dutta et al. 2018, "Slow and stale gradients can win the race", call it k-sync SGD. Both drop what comes late. Here a
late worker is recalled, and its samples go back to the pool: a "task" of MapReduce is one worker's share of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Needs
from lockstep.engine.policies.rounds import RoundPolicy, Whole


@dataclass(frozen=True)
class KSyncOptions:
    k: int = option(0, "contributions that make an update; 0: all but one worker's", least=0)


class KSync(RoundPolicy):
    """Unbiased on shuffled data where it does not depend on the data who is late; each sample of an update weighs
    1 / samples, so that fewer samples make a noisier update, not a shorter one."""

    does = "a server makes an update of the first k contributions, and recalls the other workers"
    label = "k-sync"
    Options = KSyncOptions
    needs = Needs(recall=True)

    def check_setting(self) -> None:
        if self.options.k > self.setting.training:
            workers = self.setting.training
            raise JobError(f"k={self.options.k} of {workers} workers is not possible; give at most as many")

    @property
    def k(self) -> int:
        return self.options.k or max(1, self.setting.training - 1)

    @property
    def survives_loss(self) -> int:
        return self.setting.training - self.k

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        needed = self.enough_of(self.k, expected)
        return needed if len(order) >= needed else None
