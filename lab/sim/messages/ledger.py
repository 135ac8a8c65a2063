"""The oracle: who must get what, how often, and in which order.

Every publication and every copy is written down, like parcels at a depot. The book knows three
things about a (publication, subscriber): it is **owed** (the federation promised it), **excused**
(a broker died or overflowed with it, which no agent can mend), or merely **allowed** at most once.
A subscription is *promised* from when the federation was seen converged with it.

- QoS 1: exactly once and in order, through every fault, unless excused.
- QoS 0: at most once per life of the agent; exactly once while nothing goes wrong.
- Nobody gets what was never published, or under another topic or a higher QoS.
- No broker is told that it may forget a publication before it is in the origin's log.

What is excused, tolerated or no longer promised is exactly what docs/guarantees.md leaves open.

Source: docs/guarantees.md.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from federator.protocol.types import BrokerId
from lab.sim.messages.sessions import Message, Session
from lab.sim.network import Published
from lab.sim.parts import InvariantError
from lab.sim.topics import topic_matches

MOVING_MS = 1_000
"""At most so long may both hubs of a leaf bring it QoS 0, when it is served by another one."""

LOOK_BACK_MS = 4_900
"""What was published so long before that, and is at the former hub still, comes late: hello timeout
and look back of ``hub_choice``, and a little less.
"""

INVENTED = 2**62  # from this number on nobody published it: a member of the federation made it up
INVENTED_UNDER_CUSTODY = INVENTED + 1


class Ledger:
    """Everything published and everything received.

    ``home`` is the broker of each subscribing client; ``life_of`` says which incarnation of a
    broker's agent runs, 0 when none does; what is published goes on the list ``published``.
    """

    def __init__(
        self,
        home: Mapping[str, BrokerId],
        *,
        life_of: Callable[[BrokerId], int],
        published: list[Published],
    ) -> None:
        self.calm = False  # nothing goes wrong any more: everything is promised
        self.lied_to = False  # a member lies about numbers: what came may come again, or never was
        self.proven = False  # and such lies under custody are not believed
        self.relays: frozenset[BrokerId] = frozenset()  # brokers where agents hand on to each other
        self.stamped: Mapping[BrokerId, BrokerId] = {}  # of those, where all is known again
        self.fired: Counter[str] = Counter()  # how often each excuse and outcome occurred
        self.published = published
        self.home = home
        self._life_of = life_of
        self._promised: dict[str, dict[str, int]] = {}
        self._owed: dict[str, set[int]] = {client: set() for client in home}
        self._copies: Counter[tuple[str, int, int]] = Counter()
        self._received: dict[str, set[int]] = {client: set() for client in home}
        self._may_repeat: set[tuple[str, int]] = set()
        self._distrusted: set[BrokerId] = set()
        self._set_back: set[BrokerId] = set()
        self._waived: set[str] = set()
        self._moves: dict[BrokerId, list[int]] = {}  # when leaves went on at another hub
        self._newest: dict[tuple[str, str, str], int] = {}

    # --- promises ---

    def promise(self, client: str, filters: Mapping[str, int]) -> None:
        """The federation stands, and knows these subscriptions: from now on it keeps them."""
        self._promised[client] = dict(filters)

    def waive(self, filters: Iterable[str]) -> None:
        """Some client gave these up: others that are cut off may be forgotten with it."""
        self._waived.update(filters)

    def withdraw_at(self, broker: BrokerId) -> None:
        """No client of ``broker`` is promised anything; what it had may come again."""
        for client in self.clients_of(broker):
            self.withdraw(client)
            self._may_repeat.update((client, number) for number in range(len(self.published)))

    def distrust(self, broker: BrokerId) -> None:
        """The agent of ``broker`` lost its log or its sense of time: what is there may be lost.

        So may what is published there, until the federation stands again.
        """
        self._distrusted.add(broker)
        for item in self.published:
            if item.broker == broker:
                self.excuse(item.number, "log lost")
                self.tolerate(item.number)

    def set_back(self, broker: BrokerId) -> None:
        """The clock of ``broker`` was set back: what is published there looks newer than it is."""
        self._set_back.add(broker)

    def moves(self, leaf: BrokerId, now_ms: int, since_ms: int) -> None:
        """``leaf`` is served by another hub from now on, with what was made since then.

        QoS 0 bears no stamp. What the former hub had not brought of what is older, it may miss.
        """
        self._moves.setdefault(leaf, []).append(now_ms)
        before_ms = min(since_ms, now_ms - LOOK_BACK_MS)
        for client in self.clients_of(leaf):
            for number in sorted(self._owed[client]):
                if self.published[number].at_ms < before_ms:
                    self.excuse(number, "late at the former hub", client)

    def trust_all(self) -> bool:
        """The federation stands again, and says its promises anew; whether a log had been lost."""
        distrusted = bool(self._distrusted)
        self._promised.clear()
        self._distrusted.clear()
        self._waived.clear()
        return distrusted

    def withdraw(self, client: str, filters: Collection[str] | None = None) -> None:
        """Subscriptions ended; ``None``: all, with the session."""
        held = self._promised.get(client, {})
        for filter in list(held) if filters is None else filters:
            held.pop(filter, None)
        self._owed[client] = {
            number
            for number in self._owed[client]
            if any(topic_matches(filter, self.published[number].topic) for filter in held)
        }

    def excuse(self, number: int, why: str, client: str | None = None) -> None:
        """Nobody, or not ``client``, need get this publication any more."""
        for each in self._owed if client is None else (client,):
            if number in self._owed[each]:
                self._owed[each].discard(number)
                self.fired[f"excused {why}"] += 1

    def excuse_collected(self, number: int, client: str, collected: Collection[str]) -> None:
        """It was kept: ``client`` may miss it if its broker collects all that it wants of it."""
        topic = self.published[number].topic
        wanted = {f for f in self._promised.get(client, ()) if topic_matches(f, topic)}
        if wanted <= set(collected):
            self.excuse(number, "kept", client)

    def tolerate_at(self, broker: BrokerId, number: int) -> None:
        """The agent of ``broker`` may publish this there again, not knowing that it did."""
        for client in self.clients_of(broker):
            self.tolerate(number, client)

    def may_repeat(self, number: int) -> bool:
        return any(self._may_get_again(client, number) for client in self.home)

    def _may_get_again(self, client: str, number: int) -> bool:
        if (client, number) in self._may_repeat or number >= INVENTED:
            return True
        item = self.published[number]
        moves = () if item.qos else self._moves.get(self.home[client], ())
        moving = any(abs(item.at_ms - at_ms) < MOVING_MS for at_ms in moves)
        lied_to = self.lied_to and not (self.proven and item.qos)
        return lied_to or moving or item.broker in self._set_back

    def clients_of(self, broker: BrokerId) -> list[str]:
        """Who gets what the agent of ``broker`` publishes there, and does not know it again."""
        if broker in self.relays and broker not in self.stamped:
            return list(self.home)
        at = self.stamped.get(broker, broker)
        return [client for client, home in self.home.items() if home == at]

    def owed_elsewhere(self, number: int) -> bool:
        """Somebody at another broker was promised this publication, and has not got it."""
        home = self.published[number].broker
        return any(
            number in numbers and self.home[client] != home
            for client, numbers in self._owed.items()
        )

    def tolerate(self, number: int, client: str | None = None) -> None:
        for each in self._owed if client is None else (client,):
            self._may_repeat.add((each, number))

    # --- what happens ---

    def publish(
        self, publisher: str, broker: BrokerId, topic: str, qos: int, *, now_ms: int
    ) -> Published:
        item = Published(len(self.published), publisher, broker, topic, qos, now_ms)
        self.published.append(item)
        for client, filters in self._promised.items():
            granted = {f: q for f, q in filters.items() if topic_matches(f, topic)}
            if not self.calm and granted.keys() <= self._waived:
                continue
            trusted = broker not in self._distrusted or self.home[client] == broker
            if granted and (self.calm or (trusted and min(qos, *granted.values()) > 0)):
                self._owed[client].add(item.number)
        return item

    def routed(self, broker: BrokerId, client_id: str, message: Message) -> None:
        if client_id not in self.home or self._is_invented(message.number):
            return
        item = self.published[message.number]
        life = 0 if item.qos else self._life_of(broker)
        key = (client_id, message.number, life)
        self._copies[key] += 1
        if self._copies[key] > 1:
            if not self._may_get_again(client_id, message.number):
                raise InvariantError("once_per_subscriber", f"{client_id!r} gets {item} again")
            self.fired["repeated"] += 1
        if item.topic != message.topic or not item.qos >= message.qos:
            raise InvariantError("as_published", f"{client_id!r} gets {item} as {message}")

    def dropped(self, client_id: str, message: Message) -> None:
        if message.number < 0:
            self.fired["log line dropped"] += 1
            return
        self.excuse(message.number, "overflow", client_id if client_id in self.home else None)

    def received(self, client: str, message: Message) -> None:
        """A client has a message in its hands; its broker may hand it over again."""
        number = message.number
        if self._is_invented(number):
            return
        if number in self._received[client]:
            self.fired["handed over again"] += 1
            return
        self._received[client].add(number)
        owed = number in self._owed[client]
        self._owed[client].discard(number)
        item = self.published[number]
        if not item.qos or self._may_get_again(client, number):
            return
        key = (item.publisher, item.topic, client)
        newest = self._newest.get(key, -1)
        if number < newest:
            if self._came_by_former_hub(client, item, owed=owed):
                self.fired["late by a former hub"] += 1
                return
            raise InvariantError("in_order", f"{client!r} gets {item} after {newest}")
        self._newest[key] = number

    def _came_by_former_hub(self, client: str, item: Published, *, owed: bool) -> bool:
        """Whether it came late since a leaf moved; to who came later it need not come at all."""
        moves = [*self._moves.get(item.broker, ()), *self._moves.get(self.home[client], ())]
        return any(not owed or item.at_ms <= at_ms - LOOK_BACK_MS for at_ms in moves)

    def _is_invented(self, number: int) -> bool:
        if number < INVENTED:
            return False
        if not self.lied_to or (self.proven and number == INVENTED_UNDER_CUSTODY):
            raise InvariantError("never_published", "somebody gets what nobody published")
        self.fired["invented"] += 1
        return True

    # --- brokers that die ---

    def broker_dies(
        self,
        sessions: Iterable[Session],
        database: Mapping[str, Session],
        miss: Callable[[int], Iterable[str]],
    ) -> None:
        """A broker forgets everything but its database.

        ``miss`` says who may miss a publication that waited there for an agent.
        """
        for session in sessions:
            saved = database.get(session.client_id)
            client = session.client_id if session.client_id in self.home else None
            for message in session.waiting():
                if message.number >= 0:
                    for each in (client,) if client else miss(message.number):
                        self.excuse(message.number, "died with its broker", each)
            if client is not None:
                self._may_repeat.update((client, number) for number in self._received[client])
                kept = None if saved is None else saved.filters
                gone = None if kept is None else [f for f in session.filters if f not in kept]
                self.withdraw(client, gone)
        for client_id, saved in database.items():
            for message in saved.waiting():
                if message.number >= 0:
                    self.tolerate(message.number, client_id if client_id in self.home else None)

    # --- the verdict ---

    def outstanding(self, reachable: Callable[[BrokerId, BrokerId], bool]) -> list[str]:
        """What somebody was promised and never got; ``reachable``: both ends and a way live."""
        return [
            f"{client!r} at {self.home[client]} lacks {self.published[number]}"
            for client, numbers in sorted(self._owed.items())
            for number in sorted(numbers)
            if reachable(self.published[number].broker, self.home[client])
        ]
