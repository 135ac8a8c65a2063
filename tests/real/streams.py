"""Streams: pairs of a publisher and a subscriber, of which nothing may be missing."""

import contextlib
from itertools import pairwise

from federator.errors import LinkError
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import settled
from tests.real.polling import until

LONG_KEPT_S = 120.0


def stream(here, there, topic, wanted=None, *, name="", qos=0, rate_hz=100):
    """A publisher at one broker, and a subscriber, whose session lasts, at another."""
    sender = Publisher(here.port, topic, client_id=f"{name}-pub", qos=qos, rate_hz=rate_hz)
    return sender, Subscriber(there.port, wanted or topic, client_id=f"{name}-sub", qos=qos)


def both_ways(here, there, **how):
    """A stream from each of two brokers to the other."""
    ways = (("forth", here, there), ("back", there, here))
    return [stream(a, b, f"{name}/1", f"{name}/#", name=name, **how) for name, a, b in ways]


def clients(streams):
    """All publishers and subscribers of ``streams``."""
    return [client for stream in streams for client in stream]


async def begin(streams):
    """Wait until all streams flow; the numbers from which on nothing may be missing."""
    for sender, taker in streams:
        await settled(sender, taker)
    return [sender.sent for sender, _ in streams]


async def none_lost(streams, begun):
    """End the streams, and see that everything came."""
    for sender, _ in streams:
        sender.pause()
    for (sender, taker), first in zip(streams, begun, strict=True):
        name, wanted = taker.link.client_id, set(range(first, sender.sent))
        with contextlib.suppress(LinkError):
            await until(lambda t=taker, w=wanted: w <= set(t.came), "", deadline_s=LONG_KEPT_S)
        lost = sorted(wanted - set(taker.came))
        assert not lost, f"{name}: {len(lost)} of {len(wanted)} lost, {lost[0]} to {lost[-1]}"


async def all_came(streams, begun):
    """End the streams, and see that everything came, once and in order.

    What was published before a stream flowed may come late to its subscriber: both sides of a leaf
    that moves look back.
    """
    await none_lost(streams, begun)
    for (_, taker), first in zip(streams, begun, strict=True):
        name = taker.link.client_id
        twice = sorted(n for n, c in taker.came.items() if c > 1)
        assert not twice, f"{name}: {len(twice)} came twice, {twice[0]} to {twice[-1]}"
        late = [n for before, n in pairwise(taker.order) if first <= n < before]
        assert not late, f"{name}: {len(late)} came late, {late[:5]}"


@contextlib.asynccontextmanager
async def flowing(streams, *, ends=all_came):
    """Run ``streams``; do what is to harm none once they flow, and see that everything came."""
    async with running(*clients(streams)):
        begun = await begin(streams)
        yield
        await ends(streams, begun)
