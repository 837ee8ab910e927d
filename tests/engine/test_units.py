"""Numbers, bytes and seconds as a reader is told them."""

from __future__ import annotations

import pytest

from lockstep.engine.units import bits_text, bytes_text, digits, number_text, took


@pytest.mark.parametrize(
    ("number", "text"),
    [(1234.5, "1,230"), (999.7, "1,000"), (0.012345, "0.0123"), (100, "100"), (0, "0"), (-19_490, "-19,500"),
     (9.99e8, "999,000,000"), (1.27e13, "1.27e+13")],
)  # fmt: skip
def test_a_number_has_three_digits(number: float, text: str) -> None:
    assert number_text(number) == text and digits(number) == text.replace(",", "")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (12, "12 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (4096, "4 KiB"), (16 << 20, "16 MiB"),
     ((1 << 30) - 1, "1024 MiB"), (3 << 30, "3 GiB"), (4_000_000_000_000, "3.64 TiB")],
)  # fmt: skip
def test_bytes_are_counted_by_1024(number: float, text: str) -> None:
    assert bytes_text(number) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0 bit/s"), (8, "8 bit/s"), (8e3, "8 kbit/s"), (26.64e6, "26.6 Mbit/s"), (999.9e6, "1 Gbit/s"),
     (2.5e9, "2.5 Gbit/s"), (1.2e13, "12,000 Gbit/s")],
)  # fmt: skip
def test_a_links_rate_in_the_unit_that_fits(rate: float, text: str) -> None:
    assert bits_text(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (2e-7, "0.2 µs"), (12e-6, "12 µs"), (0.0012345, "1.23 ms"), (0.9999, "1 s"), (2.314, "2.31 s"),
     (90, "90 s"), (119.9, "120 s"), (120, "2 min"), (7200, "2 h"), (3 * 86400, "3 days"), (1e9, "11,600 days"),
     (-0.5, "-500 ms")],
)  # fmt: skip
def test_seconds_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert took(seconds) == text
