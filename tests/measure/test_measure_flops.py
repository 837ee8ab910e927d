"""FLOP that torch counts, layer by layer, against those by hand and the paper's equations."""

from __future__ import annotations

import math

import pytest

from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.models.flop_count import network_layers
from lockstep.engine.models.layers import Network
from lockstep.measure.probes.flops import flops_table, run_flops


@pytest.mark.parametrize("kind", ["cnn", "convlstm", "convlstm2d"])
def test_torch_counts_what_the_layers_compute_by_hand(kind: str) -> None:
    table = flops_table(Network(kind, 1))
    assert [row["counted_flops"] for row in table] == [row["computed_flops"] for row in table]
    assert [row["name"] for row in table] == [layer.name for layer in network_layers(Network(kind, 1))]
    assert all(row["network"] == kind for row in table)


def test_a_backward_pass_costs_two_forward_passes_but_for_the_images_gradient() -> None:
    rows = {row["name"]: row for row in flops_table(Network("cnn", 1))}
    first, second = rows["convolution 1"], rows["convolution 2"]
    assert first["counted_backward_flops"] == first["counted_flops"]
    assert second["counted_backward_flops"] == 2 * second["counted_flops"]


def test_equation_1_misses_the_input_channels_of_the_second_and_third_convolution() -> None:
    rows = {row["name"]: row for row in flops_table(Network("cnn", 3))}
    found = [rows[f"convolution {n}"]["counted_flops"] / rows[f"convolution {n}"]["equation_flops"] for n in (1, 2, 3)]
    assert found == [3, 32, 64]


def test_the_experiment_adds_both_passes_up() -> None:
    trace = run_flops(
        Job.of("sequential", experiment="flops", use_case="Pneumonia", network="cnn"), ThreadGroup.of(1)[0]
    )
    table = trace.tables["flops"]
    assert {row["network"] for row in table} == {"cnn"}
    whole = math.fsum(row["counted_flops"] + row["counted_backward_flops"] for row in table)
    assert trace.scores["flops_per_image"] == whole and whole > 1e8
