"""Pipelines: a model cut into stages on several ranks, through which micro-batches flow."""

from lockstep.engine.replica.pipeline.building import Built, build_stages, stages_of
from lockstep.engine.replica.pipeline.replica import PipelineReplica

__all__ = ["Built", "PipelineReplica", "build_stages", "stages_of"]
