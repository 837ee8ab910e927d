"""Pipelines: a model cut into stages on several ranks, through which micro-batches flow.

Imports none of its modules: torch's pipelining takes seconds, and whoever looks for a model's layers needs `cut` alone.
"""
