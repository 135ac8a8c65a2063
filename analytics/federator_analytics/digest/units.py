"""Figures as a person reads them: three digits that matter and a unit."""

from datetime import datetime

DASH = "\N{EN DASH}"
"""Stands where nothing is known: not the same as 0."""

_TIMES = ((1, "\N{MICRO SIGN}s"), (1_000, "ms"), (1_000_000, "s"))
_SIZES = ((1, "B"), (1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"), (10**12, "TB"))
_RATES = ((1, "bit/s"), (10**3, "kbit/s"), (10**6, "Mbit/s"), (10**9, "Gbit/s"))
_COUNTS = ((1, ""), (1_000_000, "M"), (1_000_000_000, "G"))
_MINUTE_US = 60_000_000


def duration(us: float | None) -> str:
    """Microseconds, e.g. ``850 us``, ``12.3 ms``, ``1.24 s``, ``3 min 5 s``, ``2 h 4 min``."""
    if us is None:
        return DASH
    if abs(us) < 2 * _MINUTE_US:
        return _scaled(us, _TIMES)
    sign, seconds = "-" if us < 0 else "", round(abs(us) / 1_000_000)
    if seconds < 7_200:
        return f"{sign}{seconds // 60} min {seconds % 60} s"
    return f"{sign}{seconds // 3_600} h {seconds % 3_600 // 60} min"


def size(number: float | None) -> str:
    """Bytes, in powers of 1,000."""
    return DASH if number is None else _scaled(number, _SIZES)


def bits(number: float | None) -> str:
    """A rate of bits."""
    return DASH if number is None else _scaled(number, _RATES)


def count(number: float | None) -> str:
    """A number of things: exact and grouped below a million."""
    if number is None:
        return DASH
    if abs(number) < 1_000_000 and float(number).is_integer():
        return f"{int(number):,}"
    return _scaled(number, _COUNTS)


def ratio(number: float | None) -> str:
    """A number of things per thing, or a rate."""
    return DASH if number is None else _digits(number)


def percent(share: float | None) -> str:
    """A share of 1. What is not all never reads 100 %, and what is not nothing never 0 %."""
    if share is None:
        return DASH
    if share in (0, 1):
        return f"{share * 100:.0f} %"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.9999 < share < 1:
        return "> 99.99 %"
    return f"{_digits(share * 100)} %"


def instant(at: datetime | None) -> str:
    """Date and time of day in UTC, to the second."""
    return DASH if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _scaled(number: float, units: tuple[tuple[int, str], ...]) -> str:
    fitting = (each for each in units if abs(number) < 999.5 * each[0])
    factor, unit = next(fitting, units[-1])
    return f"{_digits(number / factor)} {unit}".rstrip()


def _digits(number: float) -> str:
    """Three digits, more where they stand before the point; no trailing zeros of a whole number."""
    if float(number).is_integer():
        return f"{int(number):,}"
    for edge, places in ((0.0995, 3), (9.995, 2), (99.95, 1)):
        if abs(number) < edge:
            return f"{number:.{places}f}"
    return f"{number:,.0f}"


def some(number: int, thing: str, things: str | None = None) -> str:
    """``one pair``, ``7 pairs``."""
    return f"one {thing}" if number == 1 else f"{count(number)} {things or thing + 's'}"
