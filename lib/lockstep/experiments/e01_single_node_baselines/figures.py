"""Notebook 01's figures, by file name: each from what is stored alone."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.analysis.figures.lines import traces_of
from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.one_session import in_one_session
from lockstep.experiments.e01_single_node_baselines.drawings import ladder_bars, operator_bars, roofline, step_stack
from lockstep.experiments.e01_single_node_baselines.findings_roofs import noted, operators_of
from lockstep.experiments.e01_single_node_baselines.tables import drawn_ladder, ladder_table, roofs_of

_ROOFS, _PASS = "How near the machine's roofs", "Operators of a forward and backward pass"
FIGURES: Mapping[str, Recipe] = {
    "ladder": lambda stored: ladder_bars(drawn_ladder(stored), "One ingredient at a time"),
    "steps": in_one_session("ladder", lambda stored, title: step_stack(ladder_table(stored.records), title)),
    "roofline": lambda stored: roofline(roofs_of(stored), operators_of(stored), noted(_ROOFS, stored)),
    "operators": lambda stored: operator_bars(operators_of(stored), noted(_PASS, stored)),
    "resources": traces_of("ladder"),
}
