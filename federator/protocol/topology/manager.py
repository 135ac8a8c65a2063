"""Chooses the brokers that one agent links with, and the links to give up.

An agent links with its neighbours on every ring (``rings``) at any cost, because these links hold
the federation together. The rest of its links go to brokers nearby that want more links. Once in a
while it checks whether a much nearer broker would exchange. It gives up one link at a time, after
checking that the graph holds together without it, and never before the links that should replace it
are up.

No broker asks for permission: a broker that agrees dials back, and a link without its second half
does not come up. Both ends see all links in the announcements, so they agree on which brokers want
more links.

Source: docs/topology.md; docs/protocol.md 16. HyParView (few links, kept; a broker with too many
lets go; random ones hold the graph together), and Law and Siu 2003.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from federator.protocol import effects as e
from federator.protocol.links.links import Links
from federator.protocol.messages.control import Hello
from federator.protocol.messages.places import (
    LINKS_MAX,
    AddressVerifier,
    Place,
    Trusting,
    encode_place,
    parse_place,
)
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.signals import OwnFiltersChanged, Step
from federator.protocol.timers import Timers
from federator.protocol.topology.directory import Directory
from federator.protocol.topology.distances import Distances
from federator.protocol.topology.graph import can_spare
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.topology.peer_link_history import PeerLinkHistory
from federator.protocol.types import BrokerId, Epoch, Millis

DIALS_MAX = 32
"""Brokers dialled at the same time without an answer yet."""

SAMPLE = 12
"""Brokers measured before the nearest of them is chosen."""

SAMPLE_PATIENCE_MS = 10_000
"""How long a broker that lacks neighbours waits for measurements."""

QUIET_MS = 1_000
QUIET_MS_MAX = 3_000
"""We wait for so long without changes, as they come in bursts; and for so long at most."""

GAIN_MS = 5
"""A round trip must be shorter by this, and by half, to be worth a change."""

REMEMBER_MS = 5_000
COMPLAINT_GAP_MS = 600_000


class TopologyManager:
    """Arranges one agent's links. Without parameters the operator arranges all links."""

    def __init__(
        self,
        links: Links,
        parameters: TopologyParameters | None,
        verifier: AddressVerifier | None = None,
    ) -> None:
        self.active = parameters is not None
        self.parameters = parameters or TopologyParameters()
        self.changes = 0  # links given up so far
        self.announced: Place | None = None  # the place that we announce
        self._links = links
        self._warrant = verifier or Trusting()
        self.directory = Directory(links.self_id, self._warrant, self.parameters)
        self._history = PeerLinkHistory(cool_ms=self.parameters.cool_ms)
        self._distances = Distances(links.self_id)
        self._seeds_dialled: set[str] = set()
        self._timers: Timers[str] = Timers()
        self._remembered: tuple[tuple[BrokerId, str], ...] = self.parameters.addresses_before
        self._next_change_ms = Millis(0)
        self._next_exchange_ms = Millis(0)
        self._lacking_since_ms: Millis | None = None
        self._news_since_ms: Millis | None = None
        self._complaints: RateLimiter[tuple[str, BrokerId]] = RateLimiter(
            gap_ms=Millis(COMPLAINT_GAP_MS), keys_max=1_024
        )
        self._listening = False

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    # -- events -----------------------------------------------------------------------------

    def on_local(self, *, now_ms: Millis) -> list[Step]:
        """Start, or start again, when our own broker's connection came up."""
        if not self.active or self._listening == self._links.listening:
            return []
        self._listening = self._links.listening
        if not self._listening:
            return []
        if "review" not in self._timers:
            self._next_exchange_ms = Millis(now_ms + self.parameters.exchange_ms)
            self.directory.recall(self.parameters.addresses_before, now_ms=now_ms)
        self.directory.start_over(now_ms=now_ms)
        self._timers.set("review", Millis(now_ms + self.parameters.look_ms))
        return [*self._seeds(), *self._announce()]

    def keep(self, addresses: Iterable[str]) -> None:
        """Store the addresses of the links that the operator configured."""
        self.parameters = replace(self.parameters, kept=frozenset(addresses))

    def on_links(self, *, now_ms: Millis) -> list[Step]:
        """Announce our links soon: one came up or went down. Short changes are not announced."""
        if self.active:
            self._timers.set_sooner("say", Millis(now_ms + self.parameters.say_ms))
        return []

    def on_announced(
        self,
        core: BrokerId,
        added: Collection[str],
        removed: Collection[str],
        *,
        lost: bool,
        now_ms: Millis,
    ) -> list[Step]:
        """Follow the places that ``core`` announces, and those that it no longer does."""
        steps: list[Step] = []
        if not self.active:
            return steps
        for text in sorted(added):
            place = parse_place(text)
            if place is None:
                continue
            objection = self.directory.come(core, place, now_ms=now_ms)
            if objection and self._complaints.allow(("refused", core), now_ms):
                details: dict[str, int | str] = {"broker": core, "reason": objection}
                steps.append(e.Notice("topology.place_refused", "warning", details))
        for text in sorted(removed):
            place = parse_place(text)
            if place is not None:
                self.directory.go(core, place, lost=lost, now_ms=now_ms)
        return steps

    def on_hello(self, hello: Hello, *, now_ms: Millis) -> list[Step]:
        """Dial the sender of ``hello`` back, if we agree to a link."""
        id, links = hello.sender, self._links
        neighbour = links.neighbours.get(id)
        if not self.active or not links.listening or id == links.self_id or not hello.address:
            return []
        if neighbour is None or neighbour.conn is not None or self._is_dialled(id, hello.address):
            return []
        grace_ms = neighbour.first_heard_ms + 2 * links.parameters.hello_interval_ms
        unknown = any(
            (c.neighbour, c.expected_id) == (None, None) for c in links.connections.values()
        )
        if (unknown and now_ms < grace_ms) or not self._welcome(id, now_ms):
            return []
        self._history.on_dialled(id, hello.address, now_ms)
        return [e.Dial(id, hello.address)]

    def on_measured(self, id: BrokerId, round_trip_ms: int | None) -> list[Step]:
        """Store the round trip to ``id``, measured by the driver."""
        self._distances.on_measured(id, round_trip_ms)
        return []

    def on_deadline(self, *, now_ms: Millis) -> list[Step]:
        """Review our links, and announce changes."""
        due = self._timers.pop_due(now_ms) if self.active else []
        steps: list[Step] = []
        if "review" in due:
            self._timers.set("review", Millis(now_ms + self.parameters.look_ms))
            if self._links.listening:
                steps += self._review(now_ms)
        if "remember" in due:
            steps += self._remember()
        if due and self._links.listening:
            steps += self._announce()
        return steps

    def beside(self) -> set[BrokerId]:
        """The brokers with which we must be linked at any cost."""
        return self._wanted()[0]

    # -- reviewing our links -----------------------------------------------------------------

    def _review(self, now_ms: Millis) -> list[Step]:
        self.directory.expire_missed(now_ms=now_ms)
        self._history.update(self._links, now_ms)
        beside, lost = self._wanted()
        steps = self._seeds()
        steps += self._tidy(beside | lost, now_ms)
        if self._is_quiet(now_ms):
            beside, lost = self._wanted()
            for id in sorted(beside | lost):
                steps += self._dial(id, now_ms)
            steps += self._fill(beside, lost, now_ms)
            steps += self._let_go(beside, now_ms)
        steps += self._measure(now_ms)
        if self.directory.addresses() != self._remembered:
            self._timers.set_sooner("remember", Millis(now_ms + REMEMBER_MS))
        return steps

    def _wanted(self) -> tuple[set[BrokerId], set[BrokerId]]:
        """Our neighbours on the rings; and those that would be if they were not missed."""
        directory, skip = self.directory, self._history.passed_over
        beside = directory.seated.beside(self._links.self_id, skip=skip)
        expected = directory.expected.beside(self._links.self_id, skip=skip)
        return beside, {id for id in expected if id not in directory.seated}

    def _is_quiet(self, now_ms: Millis) -> bool:
        """Whether no changes of other brokers have come lately."""
        changed_ms = self.directory.changed_at_ms
        if now_ms - changed_ms >= QUIET_MS:
            self._news_since_ms = None
            return True
        if self._news_since_ms is None:
            self._news_since_ms = changed_ms
        return now_ms - self._news_since_ms >= QUIET_MS_MAX

    def _seeds(self) -> list[Step]:
        """Join through the seeds, until we see them in the federation.

        None is dialled that is dialled as a neighbour already: to a broker both would be one
        client, and it would disconnect one whenever the other connects.
        """
        links, dialled = self._links, self._seeds_dialled
        steps: list[Step] = []
        leads_to = {c.address: c.neighbour for c in links.connections.values()}
        for seed in self.parameters.seeds:
            id = leads_to.get(seed)
            id = self.directory.at(seed) if id is None else id
            joined = id is not None and self.directory.place_of(id) is not None and bool(links.up)
            if seed not in dialled:
                tried = seed in leads_to or seed in self._history.dials.values()
                if not joined and seed != links.address and not tried:
                    dialled.add(seed)
                    steps.append(e.DialSeed(seed))
            elif joined and seed not in leads_to:
                dialled.discard(seed)
                steps.append(e.CallOffSeed(seed))
        return steps

    def _tidy(self, needed: Collection[BrokerId], now_ms: Millis) -> list[Step]:
        """Give up links that do not come up."""
        history, parameters = self._history, self.parameters
        steps: list[Step] = []
        for id, since_ms in sorted(history.idle_ms.items()):
            idle_ms = now_ms - since_ms
            if self._is_kept(id):
                continue
            if id not in needed:
                neighbour = self._links.neighbours.get(id)
                silent = neighbour is None or neighbour.hello is None
                fallen = id in history.fallen and silent
                give_up_ms = parameters.look_ms if fallen else parameters.give_up_ms
                if idle_ms >= give_up_ms and (self._links.up or id in history.dials):
                    steps += self._drop(id, now_ms)
            elif idle_ms >= parameters.reach_ms:
                if self.directory.place_of(id) and self._complaints.allow(("far", id), now_ms):
                    details: dict[str, int | str] = {"broker": id}
                    details["address"] = self.directory.address_of(id)
                    steps.append(e.Notice("topology.unreachable", "warning", details))
                steps += self._drop(id, now_ms)
                history.passed_over[id] = Millis(now_ms + parameters.retry_ms)
            elif history.dials.get(id, "") not in ("", self.directory.address_of(id)):
                steps += self._drop(id, now_ms)  # its address changed
                history.forgive(id)
        return steps

    def _fill(self, beside: set[BrokerId], lost: set[BrokerId], now_ms: Millis) -> list[Step]:
        """Dial a broker nearby, because we lack neighbours or it is much nearer."""
        history, target = self._history, self.parameters.neighbours
        up = history.up_ms.keys()
        tried = {id for id in history.idle_ms if id not in lost and id not in history.passed_over}
        linked = up | tried
        if len(linked) >= target or not beside <= linked:
            self._lacking_since_ms = None
            if tried or len(up) != target or now_ms < self._next_exchange_ms:
                return []
            return self._dial_nearer(beside, now_ms) if beside <= linked else []
        if tried - beside:
            return []  # dial one broker at a time
        if self._lacking_since_ms is None:
            self._lacking_since_ms = now_ms
        apart_ms = 2 * self.parameters.give_up_ms
        free = self._candidates(target - 1, apart_ms, now_ms)
        if not free and len(linked) <= target - 2:
            free = self._candidates(target, apart_ms, now_ms)
        measured = {id: far for id in free if (far := self._distances.far_ms(id)) is not None}
        patient = now_ms - self._lacking_since_ms < SAMPLE_PATIENCE_MS
        if len(measured) < min(SAMPLE, len(free)) and patient:
            return []
        far_ms = {id: measured.get(id, 2**31) for id in free}
        nearest = min(free, key=lambda id: (far_ms[id], self._distances.order(id)), default=None)
        return [] if nearest is None else self._dial(nearest, now_ms)

    def _dial_nearer(self, beside: set[BrokerId], now_ms: Millis) -> list[Step]:
        """Dial a broker much nearer than our farthest chosen neighbour, if it gains as well."""
        farthest_ms = self._farthest_ms(beside)
        best: tuple[int, BrokerId] | None = None
        for id in self._candidates(self.parameters.neighbours, self.parameters.cool_ms, now_ms):
            far_ms, place = self._distances.far_ms(id), self.directory.place_of(id)
            if far_ms is None or place is None or not _gains(farthest_ms, far_ms):
                continue
            full = len(place.links) >= self.parameters.neighbours
            if not full or _gains(place.reach_ms, far_ms):
                best = min(best or (far_ms, id), (far_ms, id))
        if best is None:
            return []
        self._next_exchange_ms = Millis(now_ms + self.parameters.exchange_ms)
        return self._dial(best[1], now_ms)

    def _candidates(self, links_max: int, apart_ms: int, now_ms: Millis) -> list[BrokerId]:
        """Brokers with at most ``links_max`` links, and without a link to us for ``apart_ms``."""
        history = self._history
        return [
            id
            for id, place in self.directory.present()
            if len(place.links) <= links_max
            and not history.knows(id)
            and not history.parted_lately(id, apart_ms, now_ms)
        ]

    def _let_go(self, beside: set[BrokerId], now_ms: Millis) -> list[Step]:
        """Give up one surplus link, the longest first, if the graph holds together without it."""
        target, up = self.parameters.neighbours, self._history.up_ms
        ready = beside <= up.keys() or len(up) >= 2 * target
        if now_ms < self._next_change_ms or not ready:
            return []
        spare = [id for id in up if id not in beside and self._is_spare(id, now_ms)]
        graph = self.directory.graph(up) if spare else {}
        for id in sorted(spare, key=lambda id: (-self._way_ms(id), self._distances.order(id))):
            if can_spare(graph, self._links.self_id, id):
                hurry = len(up) > target + 1
                pause_ms = 0 if hurry else self.parameters.settle_ms
                self._next_change_ms = Millis(now_ms + pause_ms)
                self.changes += 1
                details: dict[str, int | str] = {"neighbour": id, "links": len(up) - 1}
                notice = e.Notice("topology.link_given_up", "info", details)
                return [notice, *self._drop(id, now_ms)]
        return []

    def _is_spare(self, id: BrokerId, now_ms: Millis) -> bool:
        """Whether we or an optional neighbour have surplus links, and it can spare this one."""
        place, target = self.directory.place_of(id), self.parameters.neighbours
        if place is None or self._is_kept(id):
            return False
        ours, theirs = len(self._history.up_ms), len(place.links)
        calm = now_ms - self._history.up_ms[id] >= self.parameters.settle_ms // 2
        if theirs >= target + 2 or ours >= target + 2:
            return theirs > 2
        return calm and ours > target and theirs >= target

    def _measure(self, now_ms: Millis) -> list[Step]:
        """Measure the round trip to one candidate: the one not measured for longest."""
        history, distances = self._history, self._distances
        if not history.up_ms or not distances.may_measure(now_ms):
            return []
        beside, _ = self._wanted()
        others = [
            id
            for id, place in self.directory.present()
            if id not in history.idle_ms and id not in beside and place.address
        ]
        lacking = self._lacking_since_ms is not None
        pause_ms = self.parameters.look_ms if lacking else self.parameters.measure_ms
        chosen = distances.choose(others, pause_ms=pause_ms, now_ms=now_ms)
        return [] if chosen is None else [e.Measure(chosen, self.directory.address_of(chosen))]

    # -- helpers ----------------------------------------------------------------------------

    def _welcome(self, id: BrokerId, now_ms: Millis) -> bool:
        """Whether we agree to a link with ``id``, which dialled us."""
        history, target = self._history, self.parameters.neighbours
        beside, lost = self._wanted()
        if id in beside or id in lost:
            return True
        count = len(self._links.up.keys() | history.dials.keys() - lost)
        place = self.directory.place_of(id)
        if place is None:
            return count < target + self.parameters.guests_max
        if count > target or history.parted_lately(id, self.parameters.give_up_ms // 2, now_ms):
            return False
        if count < target or len(place.links) <= target - 2:
            return True
        if history.parted_lately(id, self.parameters.cool_ms, now_ms):
            return False
        if self._farthest_ms(beside) < 2 * GAIN_MS or now_ms < self._next_exchange_ms:
            return False
        self._next_exchange_ms = Millis(now_ms + self.parameters.exchange_ms)
        return True

    def _dial(self, id: BrokerId, now_ms: Millis) -> list[Step]:
        history = self._history
        address = self.directory.address_of(id)
        if not address or id in history.up_ms or id in history.idle_ms:
            return []
        if self._is_dialled(id, address) or len(history.idle_ms) >= DIALS_MAX:
            return []
        history.on_dialled(id, address, now_ms)
        return [e.Dial(id, address)]

    def _drop(self, id: BrokerId, now_ms: Millis) -> list[Step]:
        links = self._links
        before = {connection.address for connection in links.connections.values()}
        steps = links.drop(id)
        after = {connection.address for connection in links.connections.values()}
        self._seeds_dialled -= before - after
        if self._history.part(id, now_ms):
            steps.append(e.CallOff(id))
        return steps

    def _is_dialled(self, id: BrokerId, address: str) -> bool:
        """Whether that address is dialled already, for any reason."""
        if id in self._history.dials or address in self._seeds_dialled:
            return True
        return address in self.parameters.kept

    def _is_kept(self, id: BrokerId) -> bool:
        """Whether the operator configured this link."""
        peer = self._links.neighbours.get(id)
        connection = self._links.connections.get(peer.conn) if peer and peer.conn else None
        return connection is not None and connection.address in self.parameters.kept

    def _way_ms(self, id: BrokerId) -> int:
        """The round trip to a neighbour.

        Hellos take longer than a measurement, so they count only while there is none.
        """
        return self._distances.far_ms(id) or self._links.neighbours[id].round_trip_ms or 0

    def _farthest_ms(self, beside: Collection[BrokerId]) -> int:
        """The round trip to the farthest chosen neighbour, as far as measured."""
        chosen = (id for id in self._links.up if id not in beside and not self._is_kept(id))
        return max((self._distances.far_ms(id) or 0 for id in chosen), default=0)

    # -- announcing -------------------------------------------------------------------------

    def place(self) -> Place:
        """The place that we announce."""
        links = self._links
        beside, _ = self._wanted()
        farthest_ms = self._farthest_ms(beside)
        address, epoch = links.address, Epoch(links.epoch)
        reach_ms = 1 << (farthest_ms - 1).bit_length() if farthest_ms > 0 else 0
        before = self.announced.reach_ms if self.announced is not None else 0
        if reach_ms <= 2 * before and before <= 2 * reach_ms:
            reach_ms = before  # too small a change to announce
        return Place(
            address=address,
            epoch=epoch,
            links=tuple(links.up)[:LINKS_MAX],
            reach_ms=reach_ms,
            proof=self._warrant.sign(address, epoch),
        )

    def _announce(self) -> list[Step]:
        if not self._links.address or self.parameters.hidden:
            return []
        place, before = self.place(), self.announced
        if place == before:
            return []
        self.announced = place
        removed = frozenset() if before is None else frozenset({encode_place(before)})
        return [OwnFiltersChanged(frozenset({encode_place(place)}), removed)]

    def _remember(self) -> list[Step]:
        before, self._remembered = self._remembered, self.directory.addresses()
        return [] if before == self._remembered else [e.RememberBrokers(self._remembered)]


def _gains(now_ms: int, then_ms: int) -> bool:
    """Whether a round trip of ``then_ms`` instead of ``now_ms`` is worth a change."""
    return 2 * then_ms <= now_ms and now_ms - then_ms >= GAIN_MS
