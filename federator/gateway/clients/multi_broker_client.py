"""Clients whose topics belong to several brokers, with one leg to each broker.

A leg is a whole ``ProxiedClient``; an ``UpstreamLeg`` stands in for its client. The
``SplitSession`` merges what the legs write, and hands its packets for a leg to the leg's proxied
client as if the client had sent them. When one leg ends the client, all legs end.

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
from federator.protocol.bounded_cache import Recent
from federator.protocol.types import BrokerId
from federator.runtime.process.antechamber import Place
from federator.runtime.process.clocks import monotonic_ms

DEPARTED_MAX: Final = 4_096
"""Clients with unfinished QoS 2 deliveries, which are kept until they return."""


class UpstreamLeg:
    """The client, as the proxied client of one of its legs sees it."""

    __slots__ = ("_client", "_index", "closed")

    def __init__(self, client: "MultiBrokerClient", index: int) -> None:
        self._client = client
        self._index = index
        self.closed = False

    @property
    def open(self) -> bool:
        """Whether written packets reach the client."""
        return not self.closed and self._client.open

    @property
    def full(self) -> bool:
        """Whether the client accepts no more just now."""
        return self._client.port.full

    def block(self, why: str, blocked: bool) -> None:
        """Stop reading from the client while any leg has a reason to."""
        self._client.port.block(f"{why} {self._index}", blocked)

    def write(self, packets: list[bytes]) -> None:
        """Pass ``packets`` to the split session."""
        if not self.closed:
            self._client.on_written(self._index, b"".join(packets))

    def close(self) -> None:
        """End this leg, and the client with it."""
        if not self.closed:
            self.closed = True
            self._client.on_leg_closed()


class MultiBrokerClient:
    """One client of several brokers; ``split`` is the session that merges its legs."""

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
        """Whether the client is connected."""
        return self.port.open and not self._over

    def start(self) -> None:
        """Let the proxied clients of all legs find their brokers."""
        self._proxied = [
            self._proxy(*pair) for pair in zip(self._split.connects(), self.legs, strict=True)
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
            # Packets are assigned to legs only after all brokers accepted the client.
            self._early.append((block, packets))
            waits = sum(len(ps) for ps, _ in self._early)
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
        """Take what the client sent; return whether to call again with no data."""
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
        """End all legs: the client's connection broke, or it disconnected."""
        self._end()
        for proxied, leg in self._pairs():
            proxied.on_lost(leg, error)

    def on_room(self, port: Port, room: bool) -> None:
        """Read from all brokers only while the client has room."""
        for proxied, leg in self._pairs():
            proxied.on_room(leg, room)

    def _pairs(self, *, still_open: bool = False) -> Iterator[tuple[ProxiedClient, UpstreamLeg]]:
        """The pairs of proxied client and leg, or only those with an open leg."""
        for proxied, leg in zip(self._proxied, self.legs, strict=True):
            if not (still_open and leg.closed):
                yield proxied, leg

    def _refuse(self, error: MalformedError) -> None:
        """End the client, which broke the protocol, as ``dismiss`` does."""
        for proxied in self._proxied[:1]:
            proxied.refuse(error)

    def dismiss(self, reason: Reason, text: str) -> None:
        """End the client and send it the reason, by one leg: that ends all others."""
        for proxied in self._proxied[:1]:
            proxied.dismiss(reason, text)

    # -- the legs ---------------------------------------------------------------------------------

    def on_written(self, index: int, data: bytes) -> None:
        """Merge packets that a leg has for the client."""
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
            # Not now: the proxied client that wrote this is still running.
            self._due = self._soon(self._feed)

    def on_leg_closed(self) -> None:
        """End the client with one of its legs, unless it is disconnecting from all of them."""
        if self._over or (self._split.leaving and not all(leg.closed for leg in self.legs)):
            return
        self.port.close()
        refused = not self._split.accepted
        self._end()
        self._soon(self._leave_quietly if refused else self._leave)

    def _refuse_torn(self) -> None:
        """End the client and its sessions, new ones too: only some brokers had one."""
        self.port.close()
        self._end()
        self._soon(self._leave_quietly)
        self._soon(self._end_sessions)

    def _end_sessions(self) -> None:
        for proxied in self._proxied:
            if proxied.broker is not None:
                self._context.on_left(proxied, proxied.broker)

    def _leave(self) -> None:
        """Break all legs: the client's connection broke, so its will is due."""
        for proxied, leg in self._pairs(still_open=True):
            proxied.on_lost(leg, None)

    def _leave_quietly(self) -> None:
        """Disconnect all legs: the client was never admitted, so it leaves no will behind."""
        goodbye = wire.write_disconnect(0, self._connect.version)
        for proxied, leg in self._pairs(still_open=True):
            proxied.on_data(leg, goodbye)

    def _catch_up(self) -> None:
        """Take what the client sent before all legs were accepted."""
        for proxied, leg in self._pairs():
            proxied.on_room(leg, not self.port.full)
        self._take_early()

    def _take_early(self) -> None:
        """Take a part of that, and the rest in later turns of the loop."""
        early, self._early = self._early, []
        if early:
            self.go_on(*early[0])
            self._early = early[1:] if not self._over else []
            self._soon(self._take_early)
        self.port.block("early", bool(early))

    def _feed(self) -> None:
        """Hand each leg's packets from the split session to its proxied client."""
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
    """The upstreams of one gateway, which admits split clients.

    Attributes:
        legs: How many brokers a client has; 1 without upstreams.
    """

    def __init__(self, upstreams: Sequence[UpstreamSettings], context: GatewayContext) -> None:
        self._brokers = [BrokerId(upstream.broker) for upstream in upstreams]
        self._owners = TopicOwners([upstream.filters for upstream in upstreams])
        self.legs = self._owners.legs
        self._context = context
        self._unreleased: Recent[str, dict[Delivery, int]] = Recent(DEPARTED_MAX)

    @property
    def assignments(self) -> list[tuple[str, BrokerId]]:
        """Patterns of the legs' client ids, and their brokers."""
        return [(f"*{SUFFIX}{leg}", id) for leg, id in enumerate(self._brokers, start=1)]

    def admit(
        self, connect: wire.Connect, port: Port, splitter: wire.Splitter, place: Place
    ) -> MultiBrokerClient:
        """Admit the client that sent ``connect``."""
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
            self._unreleased.put(connect.client_id, unreleased)
