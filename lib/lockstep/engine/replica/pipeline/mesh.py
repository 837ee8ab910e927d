"""The two-dimensional mesh of ranks of a hybrid: pipelines along the rows, data parallelism along the columns.

pipeline rank     0         1
  replica 0     rank 0 -- rank 1    pipeline   activations and gradients are sent along a row
  replica 1     rank 2 -- rank 3    pipeline
                  |         |
                peers     peers                the same stages: a sync exchanges along a column

rank = replica * pipeline_size + pipeline_rank
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from lockstep.engine.groups import Group
from lockstep.engine.job import Job


@dataclass(frozen=True)
class Mesh:
    """One rank's row and column."""

    pipeline: Group
    peers: Group

    @property
    def replica(self) -> int:
        return self.peers.rank

    @property
    def pipeline_rank(self) -> int:
        return self.pipeline.rank

    @property
    def pipeline_size(self) -> int:
        return self.pipeline.size

    def stages(self, count: int, schedule: str) -> list[int]:
        """The stages of this rank, out of a model's `count`: assigned in turn, or in the shape of a V.

        in turn   pipeline rank 0: 0 2    rank 1: 1 3          V   pipeline rank 0: 0 3    rank 1: 1 2
        """
        if schedule == "zero_bubble_v":
            return [self.pipeline_rank, count - 1 - self.pipeline_rank]
        return list(range(self.pipeline_rank, count, self.pipeline_size))


# A warm team runs many jobs with the same group. Its subgroups and their connections are made once and kept as long as
# the process, because a subgroup refers to the whole group.
_MADE: weakref.WeakKeyDictionary[Group, dict[int, Mesh]] = weakref.WeakKeyDictionary()


def mesh_of(job: Job, group: Group) -> Mesh:
    """The rows and columns of `group` that `job` asks for. Collective."""
    made = _MADE.setdefault(group, {})
    places = job.pipeline_ranks
    if places not in made:
        pipeline = group.split(group.rank // places)
        peers = group.split(group.rank % places)
        peers.prepare_sums()
        made[places] = Mesh(pipeline, peers)
    return made[places]
