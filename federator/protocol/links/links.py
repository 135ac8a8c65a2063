"""Links: which brokers are our neighbours, and which links are up.

We *send* to a neighbour over a connection to its broker; we *receive* from it because it publishes
on ours. Neither direction says anything about the other, so every hello lists the neighbours whose
hellos its sender receives, and a link is up only while each side finds itself in the other's list.
The list also returns the number of the connection that carried our hello, which shows us which
broker is at an address: a new broker joins by naming any one existing broker, and is dialled back.

Think of a radio check: "I hear you on channel 3" answers both "are you there" and "which channel".

Source: docs/protocol.md 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from federator.protocol import effects as e
from federator.protocol.links.neighbour import LinkConnection, Neighbour
from federator.protocol.links.outbox import is_outbox, place_of
from federator.protocol.messages import control as c
from federator.protocol.parameters import Parameters
from federator.protocol.rate_limiter import RateLimiter, TokenBucket
from federator.protocol.signals import LinkCostChanged, LinkDown, LinkUp, OwnIdHeard, Step
from federator.protocol.timers import Timers
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch, Millis

DIAL_BACK_HELLOS = 2
"""For so many hello intervals a new sender may turn out to be behind a connection of ours."""

UNCONNECTED_MAX = 256
"""Senders of hellos that no connection of ours leads to. A client that may publish on our broker
can invent some, so the one silent for longest makes room.
"""

DIALS_PER_S_MAX = 16
"""Senders dialled back per second, and at once; the others wait."""

SHELVED_MS = 10_000
"""For so long a connection to our own broker, or to one with another connection, is not used."""

BEHIND_TIMEOUTS = 3
"""While we are behind with reading, a neighbour is given up only after so many timeouts. A
neighbour that sends us a lot can hide the death of another for so long.
"""

COMPLAINT_GAP_MS = 600_000
"""Least time between two notices about the same fact, which hellos would repeat for ever."""


@dataclass(slots=True)
class Links:
    """All links of one agent."""

    self_id: BrokerId
    epoch: Epoch  # our incarnation; ``renew`` raises it
    address: str  # where other agents reach our broker; empty when they cannot
    parameters: Parameters
    connections: dict[ConnId, LinkConnection] = field(default_factory=dict)
    neighbours: dict[BrokerId, Neighbour] = field(default_factory=dict)
    listening: bool = False
    double: tuple[str, Millis] | None = None  # where another agent used our id, and when
    _timers: Timers[tuple[str, int]] = field(default_factory=Timers)
    _noticed: RateLimiter[tuple[str, BrokerId]] = field(
        default_factory=lambda: RateLimiter(
            gap_ms=Millis(COMPLAINT_GAP_MS), keys_max=c.NEIGHBOURS_MAX
        )
    )
    _dials: TokenBucket = field(default_factory=lambda: TokenBucket(DIALS_PER_S_MAX))

    @property
    def up(self) -> Mapping[BrokerId, LinkConnection]:
        """The live links, ascending by neighbour, each with the connection that reaches it."""
        return {
            n.id: self.connections[n.conn]
            for n in sorted(self.neighbours.values(), key=lambda n: n.id)
            if n.up and n.conn is not None
        }

    def cost_to(self, neighbour: BrokerId) -> Cost | None:
        """The cost of the live link to ``neighbour``; ``None`` when it is not up."""
        state = self.neighbours.get(neighbour)
        if state is None or not state.up or state.conn is None:
            return None
        return self.connections[state.conn].cost

    def send(self, neighbour: BrokerId, message: c.Message) -> list[Step]:
        """Orders to send ``message``; none when the link is not up."""
        state = self.neighbours.get(neighbour)
        if state is None or not state.up or state.conn is None:
            return []
        return [e.Send(state.conn, message)]

    def addressee(self, conn: ConnId) -> BrokerId | None:
        """The neighbour that a greeting over ``conn`` is for; ``None`` before its first hello."""
        connection = self.connections.get(conn)
        if connection is None or connection.neighbour is None:
            return None
        return None if self.neighbours[connection.neighbour].hello is None else connection.neighbour

    def next_deadline_ms(self) -> Millis | None:
        return self._timers.next_deadline_ms()

    # -- our own broker ---------------------------------------------------------------------

    def on_local_up(self, *, now_ms: Millis) -> list[Step]:
        """Greet all neighbours: our own broker answers again."""
        self.listening = True
        self._timers.set(("hello", 0), Millis(now_ms + self.parameters.hello_interval_ms))
        return self._greet(list(self.connections), now_ms)

    def on_local_down(self, *, now_ms: Millis) -> list[Step]:
        """Send byes and take every link down: without our own broker we receive nothing."""
        if not self.listening:
            return []
        self.listening = False
        self._timers.clear(("hello", 0))
        steps = self.farewell()
        for _, neighbour in sorted(self.neighbours.items()):
            steps += self.forget_hello(neighbour, "own broker is down")
        return steps

    def farewell(self) -> list[Step]:
        """Orders to send a bye over each connection."""
        return [
            e.Send(conn, c.Bye(self.self_id, self.epoch, conn)) for conn in sorted(self.connections)
        ]

    def renew(self, epoch: Epoch, *, now_ms: Millis) -> list[Step]:
        """Continue under a newer epoch."""
        assert epoch > self.epoch, "epochs only grow"
        self.epoch = epoch
        return self._greet(list(self.connections), now_ms) if self.listening else []

    # -- our connections to others' brokers -----------------------------------------------------

    def on_connected(self, connection: LinkConnection, *, now_ms: Millis) -> list[Step]:
        """Greet the neighbour behind a connection that has just opened."""
        self.connections[connection.conn] = connection
        connection.since_ms = now_ms
        return self._greet([connection.conn], now_ms) if self.listening else []

    def on_disconnected(self, conn: ConnId) -> list[Step]:
        """Take down the link that used the lost connection, if any."""
        gone = self.connections.get(conn)
        if gone is None:
            return []
        steps: list[Step] = []
        if gone.neighbour is not None and self.neighbours[gone.neighbour].conn == conn:
            neighbour = self.neighbours[gone.neighbour]
            steps = self.take_down(neighbour, "its broker does not answer")
            neighbour.conn = None
        del self.connections[conn]
        return steps

    def drop(self, neighbour_id: BrokerId) -> list[Step]:
        """Give up the link with a neighbour, and all connections that were dialled for it."""
        steps: list[Step] = []
        neighbour = self.neighbours.get(neighbour_id)
        for conn, connection in sorted(self.connections.items()):
            found_id = connection.neighbour
            if (connection.expected_id if found_id is None else found_id) == neighbour_id:
                steps += [e.Send(conn, c.Bye(self.self_id, self.epoch, conn)), e.HangUp(conn)]
                del self.connections[conn]
        if neighbour is not None:
            steps += self.take_down(neighbour, "given up")
            neighbour.conn = None
        return steps

    # -- what we receive ---------------------------------------------------------------------------

    def has_namesake(self, hello: c.Hello, *, now_ms: Millis) -> bool:
        """Whether another agent with this id sends hellos from elsewhere: that one stays."""
        state = self.neighbours.get(hello.sender)
        if state is None or state.hello is None or hello.epoch == state.epoch:
            return False
        lately = now_ms - state.heard_at_ms < 2 * self.parameters.hello_interval_ms
        return lately and place_of(state.hello.address) != place_of(hello.address)

    def on_hello(self, hello: c.Hello, *, now_ms: Millis) -> list[Step]:
        """Handle a hello: note the sender, whether it receives ours, and over which connection."""
        if not self.listening:
            return []
        if hello.sender == self.self_id:
            return self._on_own_hello(hello, now_ms)
        if hello.version != c.PROTOCOL_VERSION:
            details: dict[str, int | str] = {"neighbour": hello.sender, "version": hello.version}
            details["wanted"] = c.PROTOCOL_VERSION
            return self._complain("neighbour.version", "warning", details, now_ms)

        neighbour = self.neighbours.get(hello.sender)
        if neighbour is None:
            self._make_room()
            if len(self.neighbours) >= c.NEIGHBOURS_MAX:
                details = {"neighbour": hello.sender, "neighbours_max": c.NEIGHBOURS_MAX}
                return self._complain("neighbour.refused", "warning", details, now_ms)
            neighbour = Neighbour(hello.sender, hello.epoch, first_heard_ms=now_ms)
            self.neighbours[hello.sender] = neighbour

        steps: list[Step] = []
        if hello.epoch != neighbour.epoch:
            refusal = self._other_incarnation(neighbour, hello, now_ms)
            if refusal is not None:
                return refusal
            steps += self.take_down(neighbour, "restarted")
            neighbour.epoch = hello.epoch
            neighbour.first_heard_ms = now_ms
            neighbour.peer_ups = 0

        news = neighbour.hello is None or neighbour.hello.conn != hello.conn
        neighbour.hello = hello
        neighbour.heard_at_ms = now_ms
        neighbour.note_whether_it_hears(self.self_id, self.epoch)
        silent_at_ms = Millis(now_ms + self.parameters.hello_timeout_ms)
        self._timers.set(("silent", neighbour.id), silent_at_ms)
        for entry in hello.hears:
            if entry.id == self.self_id:
                news |= self._identify(neighbour, entry, now_ms, steps)
                places = map(place_of, entry.namesakes)
                if other := next((at for at in places if at != self.address), None):
                    steps += self._complain_of_double(other, now_ms)
        was_up = neighbour.up
        steps += self._update_state(neighbour)
        if news or (neighbour.up and not was_up):
            steps += self._greet(self._ways_to(neighbour), now_ms)
        return steps + self._dial_back(neighbour, now_ms)

    def on_bye(self, bye: c.Bye) -> list[Step]:
        """Take the link down: the neighbour leaves, or its broker publishes its Will."""
        neighbour = self.neighbours.get(bye.sender)
        if neighbour is None or neighbour.hello is None:
            return []
        if (bye.epoch, bye.conn) != (neighbour.epoch, neighbour.hello.conn):
            # This is the Will of a connection that was replaced since: such a bye comes late.
            return []
        steps = self.forget_hello(neighbour, "said bye or died")
        # The connection that we dialled for it would only make it dial back.
        if bye.given_up and self.parameters.calls_back:
            neighbour.dialled = None
            steps.append(e.CallOff(neighbour.id))
        return steps

    def on_deadline(self, *, behind: bool = False, now_ms: Millis) -> list[Step]:
        """Send hellos that are due, and detect silent neighbours, later if we read ``behind``."""
        steps: list[Step] = []
        for kind, key in self._timers.pop_due(now_ms):
            if kind == "hello":
                steps += self._greet(list(self.connections), now_ms)
                next_ms = Millis(now_ms + self.parameters.hello_interval_ms)
                self._timers.set(("hello", 0), next_ms)
            elif kind == "silent":
                neighbour = self.neighbours[BrokerId(key)]
                patience_ms = BEHIND_TIMEOUTS * self.parameters.hello_timeout_ms
                if behind and now_ms - neighbour.heard_at_ms < patience_ms:
                    again_ms = Millis(now_ms + self.parameters.hello_interval_ms)
                    self._timers.set(("silent", neighbour.id), again_ms)
                else:
                    steps += self.forget_hello(neighbour, "silent")
            else:
                steps += self._dial_back(self.neighbours[BrokerId(key)], now_ms)
        return steps

    # -- inside ----------------------------------------------------------------------------------

    def _on_own_hello(self, hello: c.Hello, now_ms: Millis) -> list[Step]:
        """Handle a hello with our own id: ours, or that of another agent with our id."""
        mine = self.connections.get(hello.conn)
        is_at_ours = place_of(hello.address) == self.address
        ours = hello.epoch == self.epoch and is_at_ours
        if ours and mine is not None and mine.neighbour is None:
            # The connection leads to our own broker: the operator configured our own address. Or a
            # client replays our hello here: then we learn which broker is there when the replay has
            # ended.
            mine.shelved_until_ms = Millis(now_ms + SHELVED_MS)
            mine.found = self.self_id
            details: dict[str, int | str] = {"address": mine.address}
            return self._complain("neighbour.is_own_broker", "error", details, now_ms)
        if hello.epoch <= self.epoch and is_at_ours:
            return []  # from an earlier start of ours, or delayed
        return self._complain_of_double(hello.address, now_ms)

    def _complain_of_double(self, address: str, now_ms: Millis) -> list[Step]:
        self.double = (address, now_ms)
        at: dict[str, int | str] = {"address": self.address, "other_address": address}
        return self._complain("neighbour.has_own_id", "error", {"id": self.self_id} | at, now_ms)

    def _other_incarnation(
        self, neighbour: Neighbour, hello: c.Hello, now_ms: Millis
    ) -> list[Step] | None:
        """Why ``hello`` is not accepted; ``None`` when the neighbour simply restarted."""
        last_hello = neighbour.hello
        if last_hello is not None and self.has_namesake(hello, now_ms=now_ms):
            neighbour.namesake = (hello.address, now_ms)
            details: dict[str, int | str] = {"neighbour": hello.sender, "address": hello.address}
            details["also_at"] = last_hello.address
            return self._complain("neighbour.id_conflict", "error", details, now_ms)
        if hello.epoch > neighbour.epoch:
            return None
        lately = now_ms - neighbour.heard_at_ms < 2 * self.parameters.hello_interval_ms
        if last_hello is not None and lately:
            return []  # a delayed hello of the previous incarnation
        # It restarted with its clock set back and without its state. Our hello names the epoch that
        # we know, so that it renews its own.
        entry = c.HeardNeighbour(
            neighbour.id, neighbour.epoch, hello.conn, hello.sent_at_ms, held_ms=0, ups=0
        )
        steps = self._greet_with((entry,), self._ways_to(neighbour), now_ms)
        # Connections that may turn out to lead to it may as well lead to another broker.
        if neighbour.conn is None and self._may_dial(neighbour, hello) and self._dials.take(now_ms):
            neighbour.dialled = hello.address
            steps.append(e.Dial(neighbour.id, hello.address))
        return steps

    def _identify(
        self, neighbour: Neighbour, receipt: c.HeardNeighbour, now_ms: Millis, steps: list[Step]
    ) -> bool:
        """The neighbour receives us over ``receipt.conn``: record where the connection leads."""
        connection = self.connections.get(receipt.conn)
        if connection is None:
            return False
        # Only an answer to a recent hello of ours shows the epoch that the neighbour knows of us
        # now.
        if receipt.epoch > self.epoch and self._sent_lately(receipt, now_ms):
            steps.append(OwnIdHeard(receipt.epoch, neighbour.id, proven=False, greeted=True))
        if receipt.epoch != self.epoch:
            return False
        neighbour.round_trip_ms = max(0, now_ms - receipt.sent_at_ms - receipt.held_ms)
        if connection.neighbour == neighbour.id:
            self._weigh(neighbour, connection, receipt, now_ms, steps)
            return False
        connection.found = neighbour.id
        if connection.expected_id not in (None, neighbour.id):
            details: dict[str, int | str] = {"neighbour": neighbour.id}
            details |= {"address": connection.address, "wanted": int(connection.expected_id or 0)}
            steps += self._complain("neighbour.unexpected_id", "error", details, now_ms)
            return False
        # Two connections lead to one neighbour, or a client fakes that: the first counts.
        if neighbour.conn is not None and neighbour.conn != connection.conn:
            if connection.neighbour is None:
                connection.shelved_until_ms = Millis(now_ms + SHELVED_MS)
            return False
        if connection.neighbour is not None:
            other = self.neighbours[connection.neighbour]
            # ``other`` sends hellos over it: ``neighbour`` claims its connection.
            if other.hello is not None:
                details = {"neighbour": neighbour.id, "also": other.id}
                details["address"] = connection.address
                steps += self._complain("neighbour.id_conflict", "error", details, now_ms)
                return False
            other.conn = None
        connection.neighbour = neighbour.id
        neighbour.conn = connection.conn
        self._weigh(neighbour, connection, receipt, now_ms, steps)
        return True

    def _weigh(
        self,
        neighbour: Neighbour,
        connection: LinkConnection,
        receipt: c.HeardNeighbour,
        now_ms: Millis,
        steps: list[Step],
    ) -> None:
        """Update the cost of the link by the round trip of ``receipt``, where cost is measured."""
        if not connection.measured or not self._sent_lately(receipt, now_ms):
            return
        assert neighbour.round_trip_ms is not None, "it was measured just now"
        neighbour.delay.measure(neighbour.round_trip_ms)
        if connection.cost != neighbour.delay.cost:
            connection.cost = neighbour.delay.cost
            if neighbour.up:
                steps.append(LinkCostChanged(neighbour.id))

    def _update_state(self, neighbour: Neighbour) -> list[Step]:
        """Take the link up or down after a hello."""
        hello, conn = neighbour.hello, neighbour.conn
        assert hello is not None
        if conn is None:
            return self.take_down(neighbour, "no connection to its broker")
        ups = [h.ups for h in hello.hears if (h.id, h.epoch) == (self.self_id, self.epoch)]
        if not ups:
            return self._on_deaf(neighbour, self.connections[conn])
        steps: list[Step] = []
        neighbour.deaf_since_ms = None
        comes_up, neighbour.up = not neighbour.up, True
        if comes_up:
            neighbour.ups += 1
            neighbour.reason = ""
            steps.append(e.NeighbourReachable(neighbour.id, conn, hello.takes_bundles))
            steps.append(e.Notice("link.up", "info", {"neighbour": neighbour.id}))
        # A link may flap at the other end unnoticed, and that end dropped what we sent before it
        # came up: its count shows when to send everything again.
        peer_came_up = ups[-1] != neighbour.peer_ups
        neighbour.peer_ups = ups[-1]
        if neighbour.peer_ups and (comes_up or peer_came_up):
            steps.append(LinkUp(neighbour.id))
        return steps

    def _on_deaf(self, neighbour: Neighbour, connection: LinkConnection) -> list[Step]:
        """Take the link down; after a timeout, no longer assume where the connection leads."""
        now_ms = neighbour.heard_at_ms
        if neighbour.deaf_since_ms is None:
            neighbour.deaf_since_ms = now_ms
        deaf_ms = now_ms - neighbour.deaf_since_ms
        if deaf_ms > self.parameters.hello_timeout_ms and connection.expected_id is None:
            connection.neighbour = neighbour.conn = neighbour.deaf_since_ms = None
            neighbour.first_heard_ms = now_ms
        return self.take_down(neighbour, "does not hear us")

    def take_down(self, neighbour: Neighbour, reason: str) -> list[Step]:
        """Take the link down, if it is up, for this ``reason``."""
        neighbour.reason = reason
        if not neighbour.up:
            return []
        neighbour.up = False
        return [
            e.NeighbourUnreachable(neighbour.id),
            e.Notice("link.down", "warning", {"neighbour": neighbour.id, "reason": reason}),
            LinkDown(neighbour.id),
        ]

    def forget_hello(self, neighbour: Neighbour, reason: str) -> list[Step]:
        """The neighbour no longer sends hellos, so the link is down."""
        neighbour.hello = neighbour.unheard_since_ms = None
        self._timers.clear(("silent", neighbour.id))
        self._timers.clear(("dial", neighbour.id))
        return self.take_down(neighbour, reason)

    def _make_room(self) -> None:
        """When the table is full, forget the unconnected sender that was silent for longest."""
        unconnected = [n for n in self.neighbours.values() if n.conn is None]
        if len(unconnected) < UNCONNECTED_MAX and len(self.neighbours) < c.NEIGHBOURS_MAX:
            return
        gone = min(unconnected, key=lambda n: (n.heard_at_ms, n.id), default=None)
        if gone is not None:
            assert not gone.up, "a link needs a connection"
            self._timers.clear(("silent", gone.id))
            self._timers.clear(("dial", gone.id))
            del self.neighbours[gone.id]

    def _sent_lately(self, receipt: c.HeardNeighbour, now_ms: Millis) -> bool:
        """Whether the time in ``receipt`` may come from a recent hello of ours."""
        age_ms = now_ms - receipt.sent_at_ms - receipt.held_ms
        return 0 <= age_ms <= self.parameters.hello_timeout_ms

    def _complain(
        self, name: str, level: str, details: dict[str, int | str], now_ms: Millis
    ) -> list[Step]:
        """A notice about a neighbour, unless the same one was made lately."""
        about = BrokerId(int(details.get("neighbour", self.self_id)))
        return (
            [e.Notice(name, level, details)] if self._noticed.allow((name, about), now_ms) else []
        )

    def _ways_to(self, neighbour: Neighbour) -> list[ConnId]:
        """The connection to ``neighbour``, or every connection that may turn out to lead to it."""
        if neighbour.conn is not None:
            return [neighbour.conn]
        return [
            connection.conn
            for connection in self.connections.values()
            if connection.neighbour is None
        ]

    def _dial_back(self, neighbour: Neighbour, now_ms: Millis) -> list[Step]:
        hello = neighbour.hello
        if hello is None or neighbour.conn is not None or not self._may_dial(neighbour, hello):
            return []
        grace_ms = DIAL_BACK_HELLOS * self.parameters.hello_interval_ms
        due_ms = Millis(neighbour.first_heard_ms + grace_ms)
        if self._ways_to(neighbour) and now_ms < due_ms:
            self._timers.set(("dial", neighbour.id), due_ms)
            return []
        if now_ms < neighbour.let_be_until_ms:
            self._timers.set(("dial", neighbour.id), neighbour.let_be_until_ms)
            return []
        if not self._dials.take(now_ms):
            again_ms = Millis(now_ms + self.parameters.hello_interval_ms)
            self._timers.set(("dial", neighbour.id), again_ms)
            return []
        neighbour.dialled = hello.address
        return [e.Dial(neighbour.id, hello.address)]

    def _may_dial(self, neighbour: Neighbour, hello: c.Hello) -> bool:
        outbox = is_outbox(hello.address) and neighbour.id in self.parameters.outboxes
        allowed = self.parameters.dial_back or outbox
        return allowed and hello.address not in ("", neighbour.dialled)

    def _greet(self, conns: list[ConnId], now_ms: Millis) -> list[Step]:
        for_ms = self.parameters.hello_timeout_ms
        hears = (n.as_heard(now_ms, for_ms=for_ms) for _, n in sorted(self.neighbours.items()))
        return self._greet_with(tuple(entry for entry in hears if entry is not None), conns, now_ms)

    def _greet_with(
        self, hears: tuple[c.HeardNeighbour, ...], conns: list[ConnId], now_ms: Millis
    ) -> list[Step]:
        return [
            e.Send(
                conn,
                c.Hello(
                    version=c.PROTOCOL_VERSION,
                    sender=self.self_id,
                    epoch=self.epoch,
                    conn=conn,
                    sent_at_ms=now_ms,
                    address=self.connections[conn].announced_address(self.address),
                    hears=hears,
                    takes_bundles=True,
                ),
            )
            for conn in sorted(conns)
            if self.connections[conn].shelved_until_ms <= now_ms
        ]
