"""Pipelines as plain data: who works on what when, how long that should take, and where to cut a model. No torch."""
