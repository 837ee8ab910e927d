"""How numbers, bytes and seconds are written for a reader: three digits and the unit that fits. Without torch."""

from __future__ import annotations

_BYTES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_BITS = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))
_LONG = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))
_SHORT = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def digits(number: float) -> str:
    """Three digits, without an exponent where a reader would not write one: 1230; 0.0123. No commas, since those of an
    interval stand beside them, and what is written is read again."""
    return f"{float(f'{number:.3g}'):.0f}" if 999.5 <= abs(number) < 1e9 else f"{number:.3g}"


def number_text(number: float) -> str:
    """The same with commas: 1,230."""
    return f"{float(f'{number:.3g}'):,.0f}" if 999.5 <= abs(number) < 1e9 else f"{number:.3g}"


def bytes_text(number: float) -> str:
    """12 B, 1.5 KiB, 3 GiB: units of 1024."""
    for name, size in _BYTES:
        if number >= size:
            return f"{number / size:.4g} {name}" if number / size >= 999.5 else f"{number / size:.3g} {name}"
    return f"{number:.0f} B"


def bits_text(bits_per_second: float) -> str:
    """A link's rate: 1 Gbit/s, 26.6 Mbit/s, 8 bit/s; units of 1000."""
    rounded = float(f"{bits_per_second:.3g}")  # 999.9 Mbit/s is 1 Gbit/s, and not 1,000 Mbit/s
    for name, size in _BITS:
        if rounded >= size:
            return f"{number_text(rounded / size)} {name}"
    return f"{rounded:g} bit/s"


def took(seconds: float) -> str:
    """12 µs, 41 ms, 2.31 s, 90 s, 2 h, 3 days: minutes and longer units from two of them on."""
    if seconds < 0:
        return f"-{took(-seconds)}"
    rounded = float(f"{seconds:.3g}")  # 0.9999 s is 1 s, and not 1,000 ms
    for name, size in _LONG:
        if seconds >= 2 * size:
            return f"{number_text(seconds / size)} {name}"
    for name, size in _SHORT:
        if rounded >= size:
            return f"{number_text(rounded / size)} {name}"
    return f"{number_text(rounded / 1e-6)} µs" if rounded else "0 s"
