"""Tables of notebook 07, from records and the traced table `confusion` alone: accuracy, speed, and what classes get.

A round of an accuracy cell is a seed: means are over seeds, and two cells are compared seed by seed. Speed cells are
timed as everywhere else: rounds of interleaved cells, an A/A pair.
"""

from lockstep.learning_tables.accuracy import (
    accuracy_table,
    coverage_table,
    equal_updates,
    gain_table,
    paired_table,
    per_seed,
    setting_text,
)
from lockstep.learning_tables.cells import (
    ABLATION,
    CANDIDATES,
    LEARNING,
    MARGIN,
    PAIRED,
    PROFILE,
    SELECTED,
    SETTING,
    SPEED,
    mean_of,
    paired_points,
    way,
    wilson,
)
from lockstep.learning_tables.choice import beside_plain, choice_table, quoted
from lockstep.learning_tables.classes import class_table, matrix_table
from lockstep.learning_tables.speed import framework_table, operator_table, price_table, speed_table

__all__ = [
    "ABLATION",
    "CANDIDATES",
    "LEARNING",
    "MARGIN",
    "PAIRED",
    "PROFILE",
    "SELECTED",
    "SETTING",
    "SPEED",
    "accuracy_table",
    "beside_plain",
    "choice_table",
    "class_table",
    "coverage_table",
    "equal_updates",
    "framework_table",
    "gain_table",
    "matrix_table",
    "mean_of",
    "operator_table",
    "paired_points",
    "paired_table",
    "per_seed",
    "price_table",
    "quoted",
    "setting_text",
    "speed_table",
    "way",
    "wilson",
]
