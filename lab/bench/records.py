"""Figures by system, repetition by repetition, and what follows from them.

Machines drift: what else runs moves every figure of the same minute. So systems are compared
within a repetition, run against run, and the median is taken of those ratios, not of the figures.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

THROUGHPUT: Final = "throughput"
NARROW: Final = "throughput_narrow"
WINDOW: Final = "window"
STEPS_DOWN: Final = "window_steps_down"
GENERATOR_SHARE: Final = "generator_cpu_share"
DISORDERED: Final = "disordered"

RESIDENT: Final = "resident"
RESIDENT_IDLE: Final = "resident_idle"

IDLE_CLIENTS: Final = 1_000
"""Clients of a gateway that do nothing, beside those of the bench."""

BESIDE: Final = {
    "federator": "bridge",
    "direct": "bridge",
    "limit": "bridge",
    "limit-direct": "bridge",
    "gateway": "broker",
    "polling": "bridge",
    "metrics": "federator",
    "signed": "federator",
    "sealed": "federator",
    "proven": "signed",
}
"""What each system of ours is compared with."""

UNITS: Final = {
    THROUGHPUT: "msg/s",
    NARROW: "msg/s",
    WINDOW: "msg",
    STEPS_DOWN: "steps",
    GENERATOR_SHARE: "cpu",
    DISORDERED: "msg",
    RESIDENT: "MB",
    RESIDENT_IDLE: "MB",
}


class Key(NamedTuple):
    """The system, path and QoS that a figure is about."""

    system: str
    hops: int
    qos: int

    def __str__(self) -> str:
        hops = f" {self.hops} hop{'s' * (self.hops != 1)}" if self.hops else ""
        return f"{self.system}{hops} QoS {self.qos}"


@dataclass(frozen=True, slots=True)
class Record:
    """One metric of one system: the median of its repetitions."""

    system: str
    hops: int
    qos: int
    metric: str
    value: float
    unit: str
    repetitions: list[float]


class Results:
    """Figures of all systems."""

    def __init__(self) -> None:
        self._values: dict[tuple[Key, str], list[float]] = defaultdict(list)
        self._units: dict[str, str] = dict(UNITS)

    def add(self, key: Key, metric: str, value: float, unit: str | None = None) -> None:
        if unit is not None:
            self._units[metric] = unit
        self._values[key, metric].append(value)

    def subjects(self) -> list[Key]:
        return list(dict.fromkeys(key for key, _ in self._values))

    def values(self, key: Key, metric: str) -> list[float]:
        """One figure per repetition; none when it was not measured."""
        return list(self._values.get((key, metric), ()))

    def median(self, key: Key, metric: str) -> float | None:
        """The median over the repetitions; ``None`` when it was not measured."""
        values = self.values(key, metric)
        return median(values) if values else None

    def ratios(self, metric: str, of: Key, over: Key) -> list[float]:
        pairs = zip(self.values(of, metric), self.values(over, metric), strict=False)
        return [a / b for a, b in pairs if b]

    def records(self) -> Iterator[Record]:
        """Every metric, as medians; ratios follow, under systems like ``federator/bridge``."""
        for (key, metric), values in self._values.items():
            yield Record(*key, metric, median(values), self._units[metric], values)
        for key, metric in self._values:
            other = BESIDE.get(key.system)
            if other and (ratios := self.ratios(metric, key, key._replace(system=other))):
                pair = key._replace(system=f"{key.system}/{other}")
                yield Record(*pair, metric, median(ratios), "ratio", ratios)
