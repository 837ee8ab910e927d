"""Measuring a grid of cells: the protocol, warm teams, contention, resources, and probes."""
