"""Notebook 01's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import in_one_session
from lockstep.experiments.e01_single_node_baselines.drawings import ladder_bars, operator_bars, roofline, step_stack
from lockstep.experiments.e01_single_node_baselines.findings import drawn_ladder
from lockstep.experiments.e01_single_node_baselines.tables import ladder_table, operators_of, roof_table

_ROOFS = "How near the machine's roofs"
FIGURES: Mapping[str, Recipe] = {
    "ladder": lambda stored: ladder_bars(drawn_ladder(stored), "One ingredient at a time"),
    "steps": in_one_session("ladder", lambda stored, title: step_stack(ladder_table(stored.records), title)),
    "roofline": lambda stored: roofline(roof_table(stored.records), operators_of(stored), _ROOFS),
    "operators": lambda stored: operator_bars(operators_of(stored), "Operators of a forward and backward pass"),
    "resources": traces_of("ladder"),
}
