"""The cost of moving bytes: worked examples of the fit and of each exchange's longest chain."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_distribution import ALPHA, BETA, SIZES, WIRE_ERROR, not_run, records, without
from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.declared import Chain
from lockstep.predict import link_model as alphabeta
from lockstep.predict.link_model import AlphaBeta

B = 1_000_000.0


def cell(sync: str, workers: int = 4, **others: object) -> dict[str, object]:
    usual = {"hosts": 1, "servers": 0, "shards": 1, "compression": "none", "transport": "messages"}
    return {"sync": sync, "workers": workers, **usual, **others}


@settings(deadline=None)  # the first call imports scipy
@given(alpha=st.floats(1e-6, 1e-2), rate=st.floats(1e6, 1e10))
def test_a_fit_finds_the_link_it_was_made_from(alpha: float, rate: float) -> None:
    sizes = [4096, 65536, 2**20, 2**24]
    found = alphabeta.fit(sizes, [alpha + size / rate for size in sizes])
    for size in sizes:
        assert found.seconds(1, size) == pytest.approx(alpha + size / rate, rel=1e-6)


def test_a_fit_counts_short_messages_as_much_as_long_ones() -> None:
    found = alphabeta.fit([8, 2**26], [1e-3, 1.0])
    assert found.seconds(1, 8) == pytest.approx(1e-3, rel=1e-6), "a fit of absolute errors would lose the first"
    assert found.bytes_per_second == pytest.approx(2**26 / 0.999, rel=1e-3)


def test_neither_part_of_a_link_is_negative() -> None:
    found = alphabeta.fit([1000, 2000, 4000], [1.0, 1.0, 0.5])
    assert found.alpha_seconds >= 0 and found.beta_seconds_per_byte == 0


def test_what_can_not_be_fitted_says_why() -> None:
    with pytest.raises(AnalysisError, match=r"messages of \[8.0\] bytes"):
        alphabeta.fit([8, 8], [1.0, 1.1])
    with pytest.raises(AnalysisError, match="give times above 0"):
        alphabeta.fit([8, 16], [1.0, 0.0])


@pytest.mark.parametrize(
    ("this", "messages", "times"),
    [
        (cell("ping_pong", 2), 1, 1.0),
        (cell("allreduce", 2), 2, 1.0),
        (cell("allreduce"), 4, 1.5),
        (cell("allreduce", transport="sockets"), 2, 1.5),
        (cell("allreduce", 3, transport="rma"), 7, 4 / 3),
        (cell("shared_memory", 4, hosts=2), 2, 1.0),  # the ranks of a host do not use the link
        (cell("parameter_server", servers=1), 2, 8.0),
        (cell("parameter_server", shards=4), 2, 1.5),
        (cell("gossip", 2), 1, 1.0),
        (cell("gossip"), 1, 2.0),
    ],
)
def test_the_longest_chain_of_an_exchange(this: dict[str, object], messages: float, times: float) -> None:
    assert alphabeta.chain(this, B) == Chain(messages, times * B)


@pytest.mark.parametrize(
    "this",
    [
        cell("allreduce", compression="topk"),
        cell("allreduce", 4, hosts=2, transport="sockets"),  # ranks of a host talk to those of another one each
    ],
)
def test_an_exchange_without_a_known_chain(this: dict[str, object]) -> None:
    assert alphabeta.chain(this, B) is None


def test_messages_that_libraries_count_differently_are_not_predicted() -> None:
    """A library folds three parties into two first, in a way of its own."""
    assert alphabeta.chain(cell("allreduce", 3), B) == Chain(4, 4 / 3 * B, counted=False)


def test_the_link_is_that_of_the_ping_pong_rows() -> None:
    link = alphabeta.link_of(records())
    assert link.alpha_seconds == pytest.approx(ALPHA, rel=0.05)
    assert link.beta_seconds_per_byte == pytest.approx(BETA, rel=0.05)
    with pytest.raises(AnalysisError, match="no ping-pong"):
        alphabeta.link_of(without(records(), strategy="ping_pong"))


def test_measured_over_predicted_is_told_per_strategy_and_size() -> None:
    table = alphabeta.wire_table(records())
    for name, error in WIRE_ERROR.items():
        own = table[table["strategy"] == name]
        assert len(own) and own["ratio"].tolist() == pytest.approx([error] * len(own), rel=0.05), name
    sizes = table[(table["experiment"] == "wire") & (table["strategy"] == "ping_pong")]["bytes"]
    assert sorted(sizes) == sorted(SIZES)


def test_a_skipped_exchange_stays_a_row() -> None:
    frame = not_run(records(), "skipped", "no root", experiment="wire", strategy="mpi_allreduce")
    table = alphabeta.message_table(frame, "wire", AlphaBeta(ALPHA, BETA))
    lost = table[table["strategy"] == "mpi_allreduce"]
    assert lost["status"].tolist() == ["skipped"] * len(SIZES) and lost["seconds"].isna().all()


def test_the_optimisers_time_is_not_the_links() -> None:
    frame = pd.DataFrame({"sync": ["parameter_server", "allreduce"], "step_seconds": 1.0, "update_seconds": 0.25})
    frame["exchange_seconds"] = 0.5  # and a barrier of 0.25 s before it
    assert alphabeta.exchange_seconds(frame)["seconds"].tolist() == [0.75, 0.5]


def test_each_strategy_has_a_bandwidth_of_its_own() -> None:
    fits = alphabeta.fit_table(alphabeta.message_table(records(), "wire")).set_index("strategy")
    assert fits.loc["ping_pong", "message_bytes_per_second"] == pytest.approx(1 / BETA, rel=0.05)
    assert fits["worst_relative_error"].max() < 0.05


def test_a_link_is_told_in_words_and_gigabits() -> None:
    """Bug: "alpha = 50 µs, 1/beta = 125 MB/s" stood in a title, and everything else speaks of Gbit/s."""
    assert str(AlphaBeta(5e-5, 8e-9)) == "50 µs per message, 1 Gbit/s"
