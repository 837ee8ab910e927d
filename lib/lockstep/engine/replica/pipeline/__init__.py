"""A model cut into stages that stand on several ranks; micro-batches flow through them."""

from lockstep.engine.replica.pipeline.building import Built, build_stages, stages_of
from lockstep.engine.replica.pipeline.replica import PipelineReplica

__all__ = ["Built", "PipelineReplica", "build_stages", "stages_of"]
