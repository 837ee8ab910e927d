"""Tables in words: what a reader sees, while the data stay as they are."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from lockstep.analysis.column_words import WORDS
from lockstep.analysis.readable import MISSING, ReadableTable, worded, words


@pytest.fixture
def table() -> ReadableTable:
    return ReadableTable(
        {
            "use_case": ["SimpleBig"] * 3,
            "strategy": ["sequential", "processes_allreduce", "mpi_allreduce"],
            "variant": ["a", "a", "b"],
            "speedup": [1.0, 1.786123, np.nan],
            "low": [1.0, 1.7, np.nan],
            "high": [1.0, 1.8, np.nan],
            "gradient_bytes": [1024.0**2, 2.0, np.nan],
            "difference": [False, True, False],
            "reason": ["", "slower than mpi_allreduce", ""],
        }
    )


def test_a_table_is_shown_in_words_and_stays_the_data_that_it_is(table: ReadableTable) -> None:
    shown, alike = worded(table)
    assert list(shown) == ["strategy", "measured", "speedup", "gradient", "a difference?", "reason"]
    assert shown.iloc[1].tolist() == [
        "processes, all-reduce", "once", "1.786 [1.7, 1.8]", "2 B", "yes", "slower than MPI, all-reduce"
    ]  # fmt: skip
    assert shown["speedup"].tolist() == ["1", "1.786 [1.7, 1.8]", MISSING], "an interval of no width is none"
    assert shown["measured"].iloc[2] == "again (A/A: noise)"
    assert alike == ["use case AlexNet (SimpleBig)"], "said once, for all rows"
    assert table["speedup"].sum() == pytest.approx(2.786123)


def test_what_it_shows_holds_no_name_of_the_code_and_no_nan(table: ReadableTable) -> None:
    for text in (table._repr_html_(), repr(table)):
        assert not re.search(r"NaN|nan\b|True|False|[a-z]_[a-z]", text)
        assert "SimpleBig" in text
    assert repr(table).endswith("In all rows: use case AlexNet (SimpleBig).")
    assert repr(table[["speedup"]]).split()[-1] == MISSING, "seen: every text ended in the word 'what'"
    halves = ReadableTable({"share": [np.float32("nan"), np.float32(0.5)]})
    assert worded(halves)[0]["share"].tolist() == [MISSING, "0.5"]
    long = ReadableTable({"reason": ["x" * 300 + "end", "y"]})
    assert "xend" in long._repr_html_() and "xend" in repr(long), "nothing is cut off"


def test_columns_without_anything_are_left_out_and_an_empty_table_says_so(table: ReadableTable) -> None:
    assert "reason" not in worded(table.assign(reason=""))[0]
    assert "status" not in worded(table.assign(status="ok"))[0]
    assert "status" in worded(table.assign(status=["ok", "failed", "ok"]))[0]
    assert repr(table.iloc[:0]) == "No rows are stored for this table yet." == ReadableTable()._repr_html_()[3:-4]


def test_an_index_that_says_something_is_a_column() -> None:
    wide = pd.DataFrame([[1.0, 2.0]], index=pd.Index(["bad node"], name="kind"), columns=pd.Index([4, 8], name="nodes"))
    assert list(worded(wide)[0]) == ["delays", "nodes 4", "nodes 8"]
    assert list(worded(wide.reset_index(drop=True))[0]) == ["nodes 4", "nodes 8"]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("step_seconds", 0.123456, "0.1235"), ("images_per_second", 12345.6, "12346"), ("flops", 1.28e12, "1.28·10¹²"),
        ("gap", -0.00001234, "-1.23·10⁻⁵"), ("workers", 2.0, "2"), ("link_bits_per_second", 1e9, "1 Gbit/s"),
        ("link_bits_per_second", 2.6e7, "26 Mbit/s"), ("bytes", 1030148.0, "1006 KiB"), ("times", np.inf, "∞"),
        ("notebook", "02_threads_vs_processes", "02"), ("device", "cuda", "GPU"), ("rank", None, MISSING),
        ("launcher", "processes", "processes"), ("strategy", "processes", "processes, shared memory"),
        ("action", "input_backward", "input backward"), ("delays", "decoding:slow_for=5", "decoding:slow_for=5"),
    ],
)  # fmt: skip
def test_a_cell_is_worded_by_its_column(column: str, value: object, text: str) -> None:
    assert worded(pd.DataFrame({column: [value, "x"]}))[0].iloc[0, 0] == text


def test_a_heading_has_its_unit() -> None:
    assert words("forward_seconds") == "forward (s)" and words("peak_MiB") == "peak (MiB)"
    assert words("lead_steps") == "lead steps" and words("slowdown_sessions") == "slowdown, by session"
    assert not [name for name, text in WORDS.items() if "_" in text]


def test_a_remark_stands_below_a_table() -> None:
    table = ReadableTable({"strategy": ["processes"], "step_seconds": [1.5]})
    assert "median" not in repr(table) and "<p>" not in table._repr_html_()
    table.attrs["remark"] = "Seconds are medians over <2> processors."
    assert repr(table).endswith("\nSeconds are medians over <2> processors.")
    assert table._repr_html_().endswith("<p>Seconds are medians over &lt;2&gt; processors.</p>")
