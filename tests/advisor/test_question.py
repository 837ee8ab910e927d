"""What can be asked: counts, batches and links in words, and what is refused."""

from __future__ import annotations

import pytest

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS, PAYLOAD, fitted_link, has_assumed_latency, parse_link
from lockstep.advisor.question import MOST_WORKERS, Question, parse_batches, parse_counts
from lockstep.predict.link_model import AlphaBeta

LINK = AlphaBeta(25e-6, 1 / 1.2e9)


@pytest.mark.parametrize(
    ("text", "latency", "bytes_per_second"),
    [
        ("1gbit", ASSUMED_LATENCY_SECONDS, PAYLOAD * 1.25e8),
        ("10 Gbit/s", ASSUMED_LATENCY_SECONDS, PAYLOAD * 1.25e9),
        ("100mbps", ASSUMED_LATENCY_SECONDS, PAYLOAD * 1.25e7),
        ("25us,1.2e9", 25e-6, 1.2e9),
        ("0.5 ms, 2500000", 5e-4, 2.5e6),
    ],
)
def test_a_link_in_words(text: str, latency: float, bytes_per_second: float) -> None:
    link = parse_link(text)
    assert link.alpha_seconds == pytest.approx(latency)
    assert link.bytes_per_second == pytest.approx(bytes_per_second)
    assert has_assumed_latency(link) is (latency == ASSUMED_LATENCY_SECONDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fast", "--link 'fast' is not a link; give its rate, such as 1gbit"),
        ("", "is not a link"),
        ("1GB/s", "is not a link"),
        ("-1gbit", "is not a link"),
        ("25us", "is not a link"),
        ("0gbit", "0 bit/s"),
        ("1e9tbit", "bit/s with"),
        ("20s,1e9", "at most 10 s"),
    ],
)
def test_what_is_no_link(text: str, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        parse_link(text)


def test_the_link_of_a_ping_pong() -> None:
    """Of its shortest and longest messages; what happens between them is not of the link alone."""
    known = [(size, LINK.seconds(1, size)) for size in (8, 1024, 1 << 20, 1 << 22)]
    text = fitted_link([*known[:2], (65536, 1.0), *known[2:]])
    assert text == "25us,1.2e+09" and parse_link(text).seconds(1, 1e6) == pytest.approx(LINK.seconds(1, 1e6))


def test_short_messages_that_a_shaped_link_lets_through_do_not_change_its_rate() -> None:
    """Seen: a line through all of them gave 28.9 MB/s for a link of 25."""
    seen = [(8, 4.77e-5), (1024, 4.85e-5), (65536, 0.001375), (1048576, 0.04218), (4194304, 0.17605)]
    assert 0.9 < parse_link(fitted_link(seen)).bytes_per_second / 25e6 < 1.0


@pytest.mark.parametrize(
    ("ping_pong", "says"),
    [
        ([(8, 1e-5)], "two sizes"),
        ([(8, 0.0), (1024, 1e-5)], "give times above 0"),
        ([(8, 1e-4), (1 << 20, 1e-5)], "long messages took no longer"),
        ([(8, 20.0), (1024, 21.0)], "at most 10 s"),
    ],
)
def test_a_ping_pong_without_a_link(ping_pong: list[tuple[int, float]], says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        fitted_link(ping_pong)


@pytest.mark.parametrize(
    ("text", "counts"), [("8", (8,)), ("1..4", (1, 2, 3, 4)), ("4,1,2", (1, 2, 4)), ("1, 6..8,7", (1, 6, 7, 8))]
)
def test_counts_in_words(text: str, counts: tuple[int, ...]) -> None:
    assert parse_counts(text, "--workers") == counts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "--workers '0': 0 is not possible; give --workers 4"),
        ("64..1", r"counts down, which holds nothing; did you mean --workers 1\.\.64\?"),
        ("1..1e6", "'1e6' is no whole number"),
        ("1..1000000", "1000000 is not possible"),
        ("two", "'two' is no whole number"),
        ("1..2..3", "no whole number"),
        ("", "no whole number"),
        ("-2", "no whole number"),
    ],
)
def test_what_is_no_count(text: str, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        parse_counts(text, "--workers")


def test_todays_batch_stands_first() -> None:
    assert parse_batches("256,64,256") == (256, 64)
    with pytest.raises(CalibrationError, match="is a range"):
        parse_batches("1..10000000")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"workers": (0,)}, "--workers 0 is not possible"),
        ({"workers": (MOST_WORKERS + 1,)}, "is not possible; give numbers from 1"),
        ({"global_batch_sizes": (0,)}, "--batch 0 is not possible"),
        ({"hosts": (0, 1)}, "--hosts 0,1 is not possible"),
        ({"hosts": (1, 2)}, "needs the link between them, which decides the answer; give --link"),
        ({"hosts": (4,), "link": LINK}, "each host needs one"),
        ({"images": -1.0}, "--images -1 is not possible"),
        ({"images": float("nan")}, "--images nan is not possible"),
        ({"price_per_hour": 0.4}, "say how many with --images"),
    ],
)
def test_what_can_not_be_asked(asked: dict[str, object], says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        Question(**asked)  # type: ignore[arg-type]


def test_hosts_are_as_many_as_the_workers_need_cores() -> None:
    linked = Question(workers=(1, 8), link=LINK)
    assert [linked.hosts_of(workers, 2) for workers in (1, 2, 4, 5)] == [(1,), (1,), (2,), ()]
    assert Question(workers=(8,)).hosts_of(8, 2) == (1,), "without a link there is one host, on which they take turns"
    chosen = Question(workers=(4, 8), hosts=(1, 2, 3, 8), link=LINK)
    assert chosen.hosts_of(4, 2) == (1, 2) and chosen.hosts_of(8, 2) == (1, 2, 8)
