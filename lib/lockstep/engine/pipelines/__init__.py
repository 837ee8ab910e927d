"""Pipelines as plain data, without torch: in which order stages work, and where a model is cut."""
