"""Clients whose topics belong to several brokers: a connection each, and a leg to each broker.

A leg is a whole ``ProxiedClient``, to which an ``UpstreamLeg`` is the client. What the legs write
there the ``SplitSession`` puts together; what that has for a leg is handed to the leg's proxied
client as if the client had said it. When one leg ends the client, all end.

Source: docs/gateway.md, "Topics of certain brokers".
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from federator.config.gateway import UpstreamSettings
from federator.gateway import wire
from federator.gateway.clients.ports import Port
from federator.gateway.clients.proxied_client import GatewayContext, ProxiedClient
from federator.gateway.split.delivery_ids import Delivery
from federator.gateway.split.session import SUFFIX, SplitSession
from federator.gateway.split.topic_owners import TopicOwners
from federator.gateway.wire.kinds import MalformedError, Packet, Reason
from federator.protocol.types import BrokerId
from federator.runtime.process.antechamber import Place
from federator.runtime.process.clocks import monotonic_ms

DEPARTED_MAX: Final = 4_096
"""Clients whose unfinished QoS 2 deliveries are remembered until they come again."""


class UpstreamLeg:
    """The client, as the proxied client of one of its legs sees it."""

    __slots__ = ("_client", "_index", "closed")

    def __init__(self, client: "MultiBrokerClient", index: int) -> None:
        self._client = client
        self._index = index
        self.closed = False

    @property
    def open(self) -> bool:
        """Whether the client hears what is written."""
        return not self.closed and self._client.open

    @property
    def full(self) -> bool:
        """Whether the client takes no more just now."""
        return self._client.port.full

    def block(self, why: str, blocked: bool) -> None:
        """Read no more of the client while any leg has a reason not to."""
        self._client.port.block(f"{why} {self._index}", blocked)

    def write(self, packets: list[bytes]) -> None:
        """Give ``packets`` to the client, as far as they are for it."""
        if not self.closed:
            self._client.on_written(self._index, b"".join(packets))

    def close(self) -> None:
        """End this leg, and the client with it."""
        if not self.closed:
            self.closed = True
            self._client.on_leg_closed()


class MultiBrokerClient:
    """One client of several brokers, the session of which (``split``) puts its legs together."""

    def __init__(
        self,
        context: GatewayContext,
        connect: wire.Connect,
        port: Port,
        splitter: wire.Splitter,
        place: Place,
        split: SplitSession,
        on_over: Callable[[], None],
    ) -> None:
        self.port = port
        self._context = context
        self._connect = connect
        self._splitter = splitter
        self._place = place
        self._split = split
        self._on_over = on_over
        self._buffer_bytes_max = context.settings.clients.buffer_bytes_max
        self._over = False
        self._early: list[tuple[bytes, list[Packet]]] = []
        self._due: asyncio.Handle | None = None
        self._proxied: Sequence[ProxiedClient] = ()
        self.legs = [UpstreamLeg(self, index) for index in range(len(split.to_legs))]
        self._from_legs = [wire.Splitter(firsts=wire.FROM_SERVER) for _ in self.legs]

    @property
    def open(self) -> bool:
        """Whether the client is there."""
        return self.port.open and not self._over

    def start(self) -> None:
        """Let the proxied clients of all legs find their brokers."""
        self._proxied = [
            self._proxy(*each) for each in zip(self._split.connects(), self.legs, strict=True)
        ]
        for proxied in self._proxied:
            proxied.start()

    def _proxy(self, connect: wire.Connect, leg: UpstreamLeg) -> ProxiedClient:
        limit = self._context.settings.clients.packet_bytes_max
        splitter = wire.Splitter(limit=limit, firsts=wire.FROM_CLIENT)
        splitter.speak(connect.version)
        return self._context.proxy(connect, leg, splitter, self._place)

    # -- the client -------------------------------------------------------------------------------

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """Take what the client sent behind its CONNECT in the same read."""
        now_ms = monotonic_ms()
        for proxied in self._proxied:
            proxied.heard_ms = now_ms
        if not self._split.accepted or self._early:
            # Whose each packet is only matters once all brokers let the client in.
            self._early.append((block, packets))
            waits = sum(len(each) for each, _ in self._early)
            self.port.block("early", waits > self._buffer_bytes_max)
            return
        try:
            self._split.from_client(block, packets, now_ms)
            if self._splitter.fault is not None:
                raise self._splitter.fault
        except MalformedError as error:
            self._feed()
            self._refuse(error)
        else:
            self._flush()
            self._feed()

    def on_data(self, port: Port, data: bytes) -> bool:
        """Take what the client sent; whether there is more to take, with no data."""
        if not self._split.accepted:
            self._place.receive(len(data))
            if self._over:
                return False
        try:
            self.go_on(*self._splitter.feed(data))
        except MalformedError as error:
            self._refuse(error)
        return self._splitter.more

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """End all legs: the client's connection broke, or it left."""
        self._end()
        for proxied, leg in self._pairs():
            proxied.on_lost(leg, error)

    def on_room(self, port: Port, room: bool) -> None:
        """Read all brokers as the client takes what they have for it."""
        for proxied, leg in self._pairs():
            proxied.on_room(leg, room)

    def _pairs(self, *, still_open: bool = False) -> Iterator[tuple[ProxiedClient, UpstreamLeg]]:
        """Each proxied client and its leg, or only those whose leg is not closed."""
        for proxied, leg in zip(self._proxied, self.legs, strict=True):
            if not (still_open and leg.closed):
                yield proxied, leg

    def _refuse(self, error: MalformedError) -> None:
        """End the client, which broke the protocol: by one leg, as ``dismiss`` does."""
        for proxied in self._proxied[:1]:
            proxied.refuse(error)

    def dismiss(self, reason: Reason, text: str) -> None:
        """End the client, and tell it why: by one leg, for as that ends it, all others end."""
        for proxied in self._proxied[:1]:
            proxied.dismiss(reason, text)

    # -- the legs ---------------------------------------------------------------------------------

    def on_written(self, index: int, data: bytes) -> None:
        """Put what a leg has for the client together with what others have."""
        if self._over:
            return
        accepted = self._split.accepted
        try:
            self._split.from_leg(index, *self._from_legs[index].feed(data))
        except MalformedError:
            self._soon(self._proxied[index].broker_is_dead)
            return
        self._flush()
        if self._split.torn:
            self._refuse_torn()
        elif not self._split.accepted:
            full = self._split.early_bytes > self._buffer_bytes_max
            self._proxied[index].on_room(self.legs[index], not full)
        elif not accepted:
            self._soon(self._catch_up)
        if any(self._split.to_legs) and self._due is None:
            # Not now: the proxied client that wrote this is in the midst of it.
            self._due = self._soon(self._feed)

    def on_leg_closed(self) -> None:
        """End the client with one of its legs, unless it is saying goodbye to all of them."""
        if self._over or (self._split.leaving and not all(leg.closed for leg in self.legs)):
            return
        self.port.close()
        refused = not self._split.accepted
        self._end()
        self._soon(self._leave_quietly if refused else self._leave)

    def _refuse_torn(self) -> None:
        """No broker keeps anything of a session that others have not, nor one begun just now."""
        self.port.close()
        self._end()
        self._soon(self._leave_quietly)
        self._soon(self._end_sessions)

    def _end_sessions(self) -> None:
        for each in self._proxied:
            if each.broker is not None:
                self._context.on_left(each, each.broker)

    def _leave(self) -> None:
        """Break all legs: the client is gone without a word, and where its will is, it is due."""
        for proxied, leg in self._pairs(still_open=True):
            proxied.on_lost(leg, None)

    def _leave_quietly(self) -> None:
        """Say goodbye on all legs: the client was never let in, so nothing of it is left behind."""
        goodbye = wire.write_disconnect(0, self._connect.version)
        for proxied, leg in self._pairs(still_open=True):
            proxied.on_data(leg, goodbye)

    def _catch_up(self) -> None:
        """Take what the client said before all legs were there."""
        for proxied, leg in self._pairs():
            proxied.on_room(leg, not self.port.full)
        self._take_early()

    def _take_early(self) -> None:
        """Take a part of that, and the rest when others had their turn."""
        early, self._early = self._early, []
        if early:
            self.go_on(*early[0])
            self._early = early[1:] if not self._over else []
            self._soon(self._take_early)
        self.port.block("early", bool(early))

    def _feed(self) -> None:
        """Hand to each leg what the split session has for it."""
        self._due = None
        for index, out in enumerate(self._split.to_legs):
            if out:
                data = b"".join(out)
                out.clear()
                self._proxied[index].on_data(self.legs[index], data)

    def _flush(self) -> None:
        out = self._split.to_client
        if out and not self._over:
            self.port.write(out)
        out.clear()

    def _soon(self, do: Callable[[], None]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(do)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._early.clear()
            self._on_over()


class Upstreams:
    """The upstreams of one gateway, and the clients that it lets in to them.

    Attributes:
        legs: How many brokers a client has; 1 without upstreams.
    """

    def __init__(self, upstreams: Sequence[UpstreamSettings], context: GatewayContext) -> None:
        self._brokers = [BrokerId(each.broker) for each in upstreams]
        self._owners = TopicOwners([each.filters for each in upstreams])
        self.legs = self._owners.legs
        self._context = context
        self._unreleased: dict[str, dict[Delivery, int]] = {}

    @property
    def assignments(self) -> list[tuple[str, BrokerId]]:
        """Patterns of the client ids on legs, and their brokers."""
        return [(f"*{SUFFIX}{leg}", id) for leg, id in enumerate(self._brokers, start=1)]

    def admit(
        self, connect: wire.Connect, port: Port, splitter: wire.Splitter, place: Place
    ) -> MultiBrokerClient:
        """Let in a client that said ``connect``."""
        split = SplitSession(
            connect,
            self._owners,
            take_unreleased=lambda: self._unreleased.pop(connect.client_id, {}),
        )
        over = partial(self._remember, connect, split)
        client = MultiBrokerClient(self._context, connect, port, splitter, place, split, over)
        client.start()
        return client

    def _remember(self, connect: wire.Connect, split: SplitSession) -> None:
        unreleased = split.unreleased
        if unreleased and connect.session_expiry_s > 0:
            self._unreleased[connect.client_id] = unreleased
            if len(self._unreleased) > DEPARTED_MAX:
                del self._unreleased[next(iter(self._unreleased))]
