"""Equations (1) to (3) and Table 4: which product gives each printed number, and what does not follow."""

from __future__ import annotations

import pandas as pd
import pytest

from lockstep.experiments.e08_convlstm_scaling import flops

PRINTED = pd.DataFrame(
    [
        ("Conv2D", 8_000_000, "50x50", 80_000, 3.2e15),
        ("Conv2D", 160_000, "5x5", 160_000, 1.28e12),
        ("Conv2D", 320_000, "5x5", 320_000, 5.12e12),
        ("Dense", 1, "1280000 x1", 1, 2_560_000),
    ],
    columns=["layer", "kernels", "kernel_shape", "output_shape", "flops"],
)


def test_every_row_of_table_4_follows_from_its_equation_and_its_own_operands() -> None:
    found = flops.recomputed(PRINTED)
    assert found["follows"].all()
    assert found["equation_flops"].tolist() == [3.2e15, 1.28e12, 5.12e12, 2_560_000]
    assert found["product"].iloc[0] == "2 x 8000000 x 2500 x 80000"


def test_its_operands_are_filters_times_all_pixels_in_both_columns() -> None:
    found = flops.recomputed(PRINTED)
    assert found["kernels_are"].tolist() == ["100 x 32 x 50 x 50", "64 x 50 x 50", "128 x 50 x 50", "512 x 50 x 50"]
    assert found["outputs_are"].tolist() == ["32 x 50 x 50", "64 x 50 x 50", "128 x 50 x 50", "1"]


def test_a_wrong_digit_would_not_follow() -> None:
    wrong = PRINTED.assign(flops=[3.4e15, 1.28e12, 5.12e12, 2_560_000])
    assert flops.recomputed(wrong)["follows"].tolist() == [False, True, True, True]


def test_five_nodes_have_four_times_the_sum_though_they_share_one_batch() -> None:
    found = flops.totals(PRINTED).set_index("nodes")
    assert found.loc["5 nodes", "times_sum"] == pytest.approx(4, rel=1e-6)
    assert found.loc["a single node", "times_sum"] == pytest.approx(1, rel=3e-3)
    assert found.loc["hundreds and thousands of nodes", "times_sum"] == pytest.approx(4000, rel=3e-3)
    assert found["follows"].tolist() == [True, False, False]
    assert (found["sharing_a_batch"] == 3.2e15 + 1.28e12 + 5.12e12 + 2_560_000).all()


def test_table_4_is_not_the_network_of_table_2() -> None:
    found = flops.beside_table2(PRINTED)
    assert found["times"].iloc[0] == pytest.approx(3.2e15 / 3_385_600)
    assert found["layer"].tolist() == ["convolution 1", "convolution 2", "convolution 3", "dense 1"]


def test_the_table_in_the_repository_is_the_printed_one() -> None:
    stored = flops.table4()
    pd.testing.assert_frame_equal(stored[list(PRINTED)], PRINTED, check_dtype=False)


def test_exascale_is_a_rate() -> None:
    found = flops.exascale(images_per_second=500, flops_per_image=1e8, cores=2)
    assert found["measured_flops_per_second"] == 5e10 and found["images_per_second_needed"] == 1e10
    assert found["cores_needed"] == 4e7 and found["batch_of_32_per_core"] == 32 * 4e7


def test_counted_flops_stand_beside_the_equation() -> None:
    rows = [
        {"round": number, "network": "cnn", "name": "convolution 2", "equation_flops": 100.0, "computed_flops": 3200.0,
         "counted_flops": 3200.0, "counted_backward_flops": 6400.0}
        for number in (0, 1)
    ]  # fmt: skip
    table = flops.counted_table(pd.DataFrame(rows))
    assert len(table) == 1 and table["equation_over_counted"].iloc[0] == pytest.approx(1 / 32)
    assert flops.counted_table(pd.DataFrame()).empty
