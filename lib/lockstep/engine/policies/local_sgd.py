"""Local SGD: workers make several steps on parameters of their own, and a server averages them.

McDonald et al. 2010 and Stich 2019, "Local SGD converges fast and communicates little". Delays of several steps add up
before anybody waits, so that short ones average out: of steps whose times have standard deviation d, the slowest of n
workers is late by about d sqrt(2 ln n), once per step in the one case, and sqrt(H) d sqrt(2 ln n) once per H steps
here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Needs, Setting, Work
from lockstep.engine.policies.rounds import RoundPolicy, even


@dataclass(frozen=True)
class LocalSgdOptions:
    steps: int = option(4, "that a worker makes between two averages", least=1)


class LocalSgd(RoundPolicy):
    """A task of MapReduce is `steps` steps of one worker, each with its share of a global batch as wait_for_all would
    cut it; an update averages the workers' parameters by samples. With one step it is wait_for_all."""

    does = "workers make several steps on their own, then a server averages their parameters"
    label = "local SGD"
    Options = LocalSgdOptions
    needs = Needs(local_steps=True)

    @classmethod
    def fitted(cls, setting: Setting, share_seconds: float) -> Self:
        """A local step takes a whole share."""
        return super().fitted(replace(setting, micro_batch=0), share_seconds)

    def check_setting(self) -> None:
        setting = self.setting
        share = int(even(setting.global_batch, setting.training)[-1])
        if share < 1:
            raise JobError(
                f"a global batch of {setting.global_batch} images has no share for each of {setting.training} workers "
                "that step on their own; give a larger one"
            )
        if setting.micro_batch not in (0, share):
            raise JobError(f"micro_batch={setting.micro_batch}: a local step takes a share of {share} images; give 0")

    def works(self) -> list[tuple[int, Work]]:
        present = [worker for worker in range(self.setting.training) if worker not in self._gone]
        sizes, steps = even(self.pool.batch_size(), len(present)).tolist(), self.options.steps
        return [
            (worker, Work(self.pool.take(steps * size), steps * size, size, local_steps=True))
            for worker, size in zip(present, sizes, strict=True)
            if size
        ]
