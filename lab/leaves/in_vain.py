"""What a bounded cover brings that no leaf wanted: drawn, and counted once on real processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.config.topology import HubSettings
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.line_chart import line_chart
from lab.frame.settings import numbers, setting
from lab.leaves.naming import NAMINGS, SKEW
from lab.leaves.over_delivery import OverDelivery, over_delivery
from lab.leaves.over_delivery_live import Counted, counted

IN_VAIN_MAX: Final = 0.1
JUDGED: Final = "shops"
DEFAULT: Final = HubSettings().filters_max
BOUNDS: Final = "375,750,1050,1500,2100,3000,4200,6000,12000,36000"


@dataclass(frozen=True, slots=True)
class Settings:
    """Which bounds, over how much traffic."""

    bounds: tuple[int, ...] = setting(BOUNDS, "Filters told at most, in turn.", parse=numbers)
    publications: int = setting(200_000, "Drawn.", 2, 10_000_000)
    skew: float = setting(SKEW, "Zipf's exponent of traffic.", 0, 2)
    seed: int = setting(1)
    svg: Path | None = setting(None, "Draw it.")
    live: bool = setting(default=False, about="And once on real brokers and agents.")


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """Over-delivery of each naming and bound; ``live``: what a hub counted for ``JUDGED``."""

    over_delivery: dict[str, list[OverDelivery]]
    live: Counted | None

    @property
    def in_vain_judged(self) -> float:
        """The worst share of a hub with the default bound, for a chain of shops."""
        at_default = (each for each in self.over_delivery[JUDGED] if each.bound == DEFAULT)
        drawn = next(at_default).then.in_vain
        return drawn if self.live is None else max(drawn, self.live.then.in_vain)

    @property
    def held(self) -> bool:
        return self.in_vain_judged < IN_VAIN_MAX

    def lines(self) -> Iterator[str]:
        yield "naming      bound  filters  in vain at first   then"
        for name, results in self.over_delivery.items():
            for each in results:
                yield (
                    f"{name:9}  {each.bound:>6,}  {each.filters:>7,}  "
                    f"{each.first.in_vain:>16.1%}  {each.then.in_vain:>5.1%}"
                )
        if self.live is not None:
            first, then = self.live.first, self.live.then
            yield (
                f"live, {JUDGED}, bound {DEFAULT}: {self.live.filters_asked} filters asked for; "
                f"{first.in_vain:.1%} of {first.bytes_carried} bytes in vain at first, "
                f"{then.in_vain:.1%} of {then.bytes_carried} then"
            )

    def record(self) -> dict[str, object]:
        found = {"in_vain_judged": self.in_vain_judged, "over_delivery": self.over_delivery}
        return found if self.live is None else {**found, "live": self.live}


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Draw what 100 leaves of 100 filters want and the world publishes; add up what none wanted.

    Exits 1 when a hub with the default bound carries 10 % or more of its bytes in vain for a chain
    of shops, drawn or (--live) counted by itself on real processes; otherwise 0.
    """
    how = {"seed": settings.seed, "publications": settings.publications}
    every = dict.fromkeys((*settings.bounds, DEFAULT))
    drawn = {
        name: over_delivery(naming, every, skew=settings.skew, **how)
        for name, naming in NAMINGS.items()
    }
    if settings.svg is not None:
        settings.svg.write_text(_drawn(drawn), encoding="utf-8")
    live = None
    if settings.live:
        live = await counted(folder, NAMINGS[JUDGED], skew=settings.skew, **how)
    return Outcome(drawn, live)


def _drawn(results: dict[str, list[OverDelivery]]) -> str:
    curves = {
        name: {float(r.bound): 100 * r.then.in_vain for r in each} for name, each in results.items()
    }
    curves["pooled, at first"] = {float(r.bound): 100 * r.first.in_vain for r in results["pooled"]}
    return line_chart(
        "100 leaves of 100 filters: carried to their hub in vain",
        "hub.filters_max",
        "% of bytes",
        curves,
        log_x=True,
    )


command = experiment("over-delivery", Settings, run)
