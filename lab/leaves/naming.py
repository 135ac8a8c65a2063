"""What 100 small sites on one hub want, and what the rest of the world publishes: three namings.

**shops**: a chain of 10,000, ``site/N/...`` each, 100 to a hub. A shop hears the commands for its
40 devices, looks at some other shops' alarms and stock, and follows its region's prices: 100
filters. The world publishes commands for all shops (some for devices that are there no longer),
what devices of other hubs' shops say, forecasts that only headquarters read, and prices.

**pooled**: as ``shops``, but 100 devices at each site, called by any of 1,000 names, and each wants
one command. So a device's name tells more than a site's number, as long as only 100 are known.

**scattered**: of 400 values at each site its leaf wants any 100, and all 400 are published, by
other hubs. No summary can say that shortly; it shows what a cover costs where names do not help.

Traffic is skewed: of sites, and of the devices of each, some are heard of far more than others
(Zipf's law). Sizes are a few hundred bytes.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

LEAVES: Final = 100
FILTERS: Final = 100
SITES: Final = 10_000
DEVICES: Final = 40
POOL: Final = 1_000
"""Names of devices that sites with pooled names have 100 of."""

GONE: Final = 2
"""Devices of a site that commands still go to, and that nobody hears."""

KINDS: Final = ("till", "fridge", "light", "door", "scale")
DEPARTMENTS: Final = 10
SKEW: Final = 0.9
"""Zipf's exponent."""

PAYLOAD_BYTES: Final = (20, 400)

Publication = tuple[str, bytes]
"""Topic and payload."""


@dataclass(frozen=True, slots=True)
class Naming:
    """A way to name things, and who wants which.

    Attributes:
        wishes: What one leaf wants, by its site.
        topic: Draws what something is published on.
    """

    name: str
    wishes: Callable[[int, random.Random], list[str]]
    topic: Callable[["Draws"], str]

    def wanted(self, seed: int) -> dict[int, list[str]]:
        rng = random.Random(f"wishes {seed}")
        return {site: self.wishes(site, rng) for site in range(1, LEAVES + 1)}

    def traffic(self, seed: int, *, skew: float = SKEW) -> Iterator[Publication]:
        draws = Draws(random.Random(f"traffic {seed}"), skew)
        while True:
            yield self.topic(draws), b"." * draws.rng.randint(*PAYLOAD_BYTES)


class Draws:
    """Sites and devices, some of them far more often than others."""

    def __init__(self, rng: random.Random, skew: float) -> None:
        self.rng = rng
        self._sites = _zipf(SITES, skew)
        self._devices = _zipf(DEVICES + GONE, skew)
        self._order = list(range(1, SITES + 1))
        rng.shuffle(self._order)

    def site(self) -> int:
        """Any site; every hub has its share of those that are heard of much."""
        return self._order[bisect_left(self._sites, self.rng.random())]

    def device(self, site: int) -> str:
        """A device of a site, of another kind at each site that is heard of most."""
        rank = bisect_left(self._devices, self.rng.random())
        return _device((rank * 11 + site) % (DEVICES + GONE))


def _zipf(count: int, skew: float) -> list[float]:
    cumulated = list(accumulate((rank + 1) ** -skew for rank in range(count)))
    return [each / cumulated[-1] for each in cumulated]


def _device(number: int) -> str:
    return f"{KINDS[number % len(KINDS)]}-{number // len(KINDS)}"


def _region(site: int) -> int:
    return (site - 1) // LEAVES


def _wishes_of_a_shop(site: int, rng: random.Random) -> list[str]:
    orders = [f"site/{site}/{_device(n)}/{what}" for n in range(DEVICES) for what in _ORDERS]
    first = _region(site) * LEAVES + 1
    near = rng.sample(range(first, first + LEAVES), 2)
    far = rng.sample(range(1, SITES + 1), 2)
    alarms = [f"site/{other}/+/alarm" for other in (*near, *far)]
    stock = [f"site/{other}/{_device(n)}/stock" for other in near for n in (0, 5, 10)]
    prices = [f"region/{_region(site)}/price/{n}" for n in range(DEPARTMENTS)]
    return [*orders, *alarms, *stock, *prices]


_ORDERS = ("set", "config")
_REPORTS = ("state", "state", "state", "state", "alarm", "stock")


def _topic_of_the_chain(draws: Draws) -> str:
    rng, site = draws.rng, draws.site()
    match rng.choices(("order", "report", "forecast", "price"), (5, 3, 1, 1))[0]:
        case "order":
            return f"site/{site}/{draws.device(site)}/{rng.choice(_ORDERS)}"
        case "report":  # of other hubs' shops: those of ours reach us by their leaves
            while site <= LEAVES:
                site = draws.site()
            return f"site/{site}/{draws.device(site)}/{rng.choice(_REPORTS)}"
        case "forecast":
            return f"site/{site}/forecast/{rng.randrange(DEPARTMENTS)}"
        case _:
            return f"region/{_region(site)}/price/{rng.randrange(DEPARTMENTS)}"


_VALUES: Final = 10


@lru_cache(SITES)
def _pooled(site: int) -> list[str]:
    names = random.Random(f"pooled {site}").sample(range(POOL), FILTERS)
    return [f"site/{site}/device-{name}/set" for name in names]


def _wishes_for_a_pool(site: int, rng: random.Random) -> list[str]:
    return _pooled(site)


def _topic_of_a_pool(draws: Draws) -> str:
    return draws.rng.choice(_pooled(draws.site()))


def _any_wishes(site: int, rng: random.Random) -> list[str]:
    every = [f"site/{site}/{_device(n)}/value-{v}" for n in range(DEVICES) for v in range(_VALUES)]
    return rng.sample(every, FILTERS)


def _any_topic(draws: Draws) -> str:
    site = draws.site()
    return f"site/{site}/{draws.device(site)}/value-{draws.rng.randrange(_VALUES)}"


NAMINGS: Final = {
    each.name: each
    for each in (
        Naming("shops", _wishes_of_a_shop, _topic_of_the_chain),
        Naming("pooled", _wishes_for_a_pool, _topic_of_a_pool),
        Naming("scattered", _any_wishes, _any_topic),
    )
}
