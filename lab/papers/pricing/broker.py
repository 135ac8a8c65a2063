"""One broker: prices its own links, learns routes from announcements, asks for what it needs.

Routes spread as core announcements do: the publisher numbers them, and a broker passes on what is
newer, or cheaper under the same number. While one number lasts a broker's own lengths are frozen
and its cost only falls, so following costs downhill never leads in a circle. A neighbour on the way
is told a spare one, which nobody follows (``topic_state``). Some time after a number was first
heard, the broker makes the best neighbour its parent; if it has clients or children for the topic
it asks the parent to be fed.

Three things keep the whole from oscillating: topics take turns, so that few choose at a time by the
same prices; the arc that feeds a broker now looks shorter than it is, the more so the more often
the broker has moved; and when demand has lasted long enough, whoever is fed **holds** its parent
(``holding``). A lasting change of demand, which its publisher notices, makes all begin anew.

Clients whose way costs as much as leaving them out do not ask for it, until it is cheaper.
"""

import math
from dataclasses import dataclass, field, replace
from typing import assert_never

from lab.papers.pricing import channels
from lab.papers.pricing.channels import Channel, Rate
from lab.papers.pricing.demand import Demand
from lab.papers.pricing.holding import Hold, Verdict
from lab.papers.pricing.messages import Announcement, Joins, Price, Route, Want
from lab.papers.pricing.topic_state import LOYALTY, Detour, TopicState, want

LOYALTY_GROWTH = 1.1  # by each move: whoever has moved often moves only when it must
LOYALTY_MAX = 0.5
SAME_CHANGE_ROUNDS = 10
"""What is noticed within so many rounds of an epoch's beginning is what made it begin."""
EPOCH_ROUNDS_MIN = 30  # demand that changes again sooner has to wait until all begins anew again
NO_PRICE = Price(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class InLink:
    """An arc that may feed this broker."""

    arc: int  # its number
    cost: float  # in mean costs of an arc
    channel: int  # what it shares its capacity with
    capacity: float  # of the channel


@dataclass(frozen=True, slots=True)
class HeardOffer:
    """What an announcement has taught a broker."""

    changed: set[int]  # topics to pass on
    new: set[int]  # topics to choose a parent for: their number was new, or our parent is fed by us
    hints: dict[int, set[int]]  # topics whose spare way is other than the neighbour knows


@dataclass(slots=True)
class Broker:
    """A broker that prices its own links and chooses its own ways."""

    id: int  # node number
    penalty: float = math.inf  # what an unmet request costs, in mean costs of an arc
    in_links: dict[int, InLink] = field(default_factory=dict)  # by neighbour that may feed us
    # Arc and channel to each neighbour that we may feed.
    out_arcs: dict[int, tuple[int, int]] = field(default_factory=dict)
    owned: dict[int, Channel] = field(default_factory=dict)  # channels that we price
    published: set[int] = field(default_factory=set)  # topics published here
    subscribed: set[int] = field(default_factory=set)  # topics that local clients want
    prices: dict[int, Price] = field(default_factory=dict)
    topics: dict[int, TopicState] = field(default_factory=dict)
    rates: dict[int, Rate] = field(default_factory=dict)  # of topics, as announced
    demand: dict[int, Demand] = field(default_factory=dict)  # of topics published here, as measured
    began: int = 0  # round in which demand last changed lastingly, anywhere
    changed: bool = False  # whether it has changed here since
    round: int = 0
    moves: int = 0

    def measure(self, topic: int, rate: float) -> None:
        demand = self.demand.setdefault(topic, Demand())
        if demand.take(rate):
            self._notice()
        self._rate(topic, Rate(demand.mean, demand.error))

    def _rate(self, topic: int, rate: Rate) -> None:
        if self.rates.get(topic) != rate:
            self.rates[topic] = rate
            for channel in self.owned.values():
                channel.quoted = None

    def subscribe(self, topics: set[int]) -> None:
        if topics != self.subscribed:
            self.subscribed = topics
            self._notice()

    def _notice(self) -> None:
        """Demand has changed lastingly here."""
        if self.round - self.began >= SAME_CHANGE_ROUNDS:
            self.changed = True

    def _join_epoch(self, began: int) -> None:
        """Prices and habits begin anew, here and, as announcements tell, everywhere."""
        self.began, self.changed = began, False
        for state in self.topics.values():
            state.loyalty = LOYALTY
        for channel in self.owned.values():
            channel.lasting, channel.pressure, channel.quoted = 0.0, 1.0, None

    @property
    def age(self) -> int:
        """Rounds that demand has lasted; from the second epoch on, all begins with the sale."""
        return self.round - self.began + (channels.NEGOTIATED_ROUNDS if self.began else 0)

    def needs(self, topic: int) -> bool:
        state = self.topics.get(topic)
        below = state is not None and bool(state.children)
        return below or self._wants(topic) or topic in self.published

    def _wants(self, topic: int) -> bool:
        """Whether local clients ask for ``topic``: they subscribed, and its way is worth it."""
        state = self.topics.get(topic)
        return topic in self.subscribed and not (state is not None and state.dear)

    def begin_round(self, round_: int) -> None:
        """Close the books of the last round."""
        self.round = round_
        if self.changed and round_ - self.began >= EPOCH_ROUNDS_MIN:
            self._join_epoch(round_)
        for state in self.topics.values():
            for child, asked in list(state.children.items()):
                if round_ - asked > channels.LEASE_ROUNDS:
                    state.drop(child)
        for channel in self.owned.values():
            channel.end_round(round_, self.age, self.rates)

    def number(self, topic: int) -> None:
        """Give ``topic``, which is published here, the round's number."""
        state = self.topics.setdefault(topic, TopicState())
        state.seq, state.cost = self.round, 0.0

    def due(self, topic: int, *, turn: bool) -> bool:
        """Whether ``topic``, published here, is numbered in this round: its turn, or in a hurry."""
        return turn or (topic in self.topics and self.topics[topic].hurried == self.round - 1)

    def announcements(self, topics: set[int]) -> dict[int, Announcement]:
        """What each neighbour is told about ``topics``: our ways, the prices of its link."""
        ways = {topic: self._way(topic) for topic in sorted(topics)}
        return {
            neighbour: self._announcement(neighbour, ways) for neighbour in sorted(self.out_arcs)
        }

    def hints(self, neighbour: int, topics: set[int]) -> Announcement:
        """What ``neighbour`` alone is told about ``topics``, as our own way has not changed."""
        return self._announcement(neighbour, {topic: self._way(topic) for topic in sorted(topics)})

    def _announcement(self, neighbour: int, ways: dict[int, Route]) -> Announcement:
        routes = {
            topic: self._spare(topic, neighbour, way) if neighbour in way.path else way
            for topic, way in ways.items()
        }
        channel = self.out_arcs[neighbour][1]
        return Announcement(self.id, routes, self._told(channel), self.began)

    def _way(self, topic: int) -> Route:
        state, rate = self.topics[topic], self.rates[topic]
        if state.best is None:
            return Route(state.seq, state.cost, rate.mean, (self.id,), rate.error)
        before = state.heard[state.best]
        pressed = before.pressed or self._leaves(topic, state.best)
        path = (*before.path, self.id)
        return Route(state.seq, state.cost, rate.mean, path, rate.error, pressed=pressed)

    def _spare(self, topic: int, neighbour: int, way: Route) -> Route:
        """What would be our way without ``neighbour``; ours, of no use to it, if there is none."""
        state = self.topics[topic]
        cost, other = state.around(neighbour, broker=self.id)
        state.spares[neighbour] = cost
        if other is None:
            return way
        return replace(way, cost=cost, path=(*state.heard[other].path, self.id), spare=True)

    def _told(self, channel: int) -> dict[int, Price]:
        owned = self.owned.get(channel)
        return {} if owned is None else {channel: owned.price(self.rates)}

    def hear(self, message: Announcement) -> HeardOffer:
        self.prices.update(message.prices)
        if message.began > self.began:
            self._join_epoch(message.began)
        heard = HeardOffer(set(), set(), {})
        for topic, route in message.routes.items():
            state = self.topics.setdefault(topic, TopicState())
            if topic in self.published or route.seq < state.seq:
                continue
            if route.seq > state.seq:
                self._renumber(topic, state, route)
                heard.new.add(topic)
            state.heard[message.sender] = route
            held = self._holds(topic, state)
            if held and message.sender == state.parent and route.leads_over(self.id):
                heard.new.add(topic)
            if (not held or message.sender == state.parent) and self._follow(state, message.sender):
                heard.changed.add(topic)
                continue
            for neighbour in state.unaware(self.out_arcs, broker=self.id):
                heard.hints.setdefault(neighbour, set()).add(topic)
        return heard

    def _renumber(self, topic: int, state: TopicState, route: Route) -> None:
        """A new number of ``topic``, as ``route`` is the first to say."""
        if state.parent in state.heard:
            state.hold.said = state.heard[state.parent]
        state.seq, state.cost, state.best = route.seq, math.inf, None
        state.heard, state.spares = {}, {}
        self._rate(topic, Rate(route.rate, route.error))
        self._freeze_lengths(topic, state)

    def _follow(self, state: TopicState, neighbour: int) -> bool:
        """Take the way over ``neighbour`` if it is shorter, and no circle; whether it was taken."""
        route = state.heard[neighbour]
        cost = state.way(neighbour)
        if cost >= state.cost or route.leads_over(self.id):
            return False
        state.cost, state.best = cost, neighbour
        return True

    def _holds(self, topic: int, state: TopicState) -> bool:
        """Whether we stay with our parent unless there is a reason to leave it."""
        return self.age >= channels.CLOSED_ROUNDS and state.parent is not None and self.needs(topic)

    def _freeze_lengths(self, topic: int, state: TopicState) -> None:
        """What the way over each neighbour adds, while this number lasts."""
        fed = self.needs(topic)
        requests = max(1, self._requests(topic))
        for neighbour, link in self.in_links.items():
            used = fed and neighbour == state.parent
            toll = channels.charge(
                self._price(link.channel),
                capacity=link.capacity,
                topic=topic,
                rate=self.rates[topic],
                carried=used,
                requests=requests,
            )
            length = link.cost + toll + 1e-9
            state.lengths[neighbour] = length * (1 - state.loyalty) if used else length

    def choose(self, topic: int) -> tuple[dict[int, Joins], bool]:
        """Some time after a new number: whom to ask, if somebody new feeds us; whether to tell."""
        state, fed = self.topics[topic], self.needs(topic)
        told = self._holds(topic, state) and self._review(topic, state)
        state.weigh(self.penalty)
        if fed and not self.needs(topic):
            return self._leave(topic, state), told
        if state.best is None or (state.best == state.parent and fed == self.needs(topic)):
            return {}, told
        before, state.parent = state.parent, state.best
        state.hold = Hold()
        if not self.needs(topic):
            return {}, told
        if not fed:
            return {state.parent: self._ask(state.parent, {topic})}, told
        self.moves += 1
        state.loyalty = min(LOYALTY_MAX, state.loyalty * LOYALTY_GROWTH)
        if before is not None:
            self._release(topic, before)
        asked = {state.parent: self._ask(state.parent, {topic})}
        if before is not None:
            asked[before] = self.joins(before)
        return asked, told

    def _leave(self, topic: int, state: TopicState) -> dict[int, Joins]:
        """Nobody here asks for ``topic`` any more."""
        if state.parent is None:
            return {}
        self._release(topic, state.parent)
        return {state.parent: self.joins(state.parent)}

    def _review(self, topic: int, state: TopicState) -> bool:
        """Whether our way has changed: because the parent is gone, or another is much better."""
        parent = state.parent
        assert parent is not None, "only who is fed holds"
        ways = {
            neighbour: state.way(neighbour)
            for neighbour, route in state.heard.items()
            if not route.leads_over(self.id) and state.way(neighbour) < math.inf
        }
        above = state.heard.get(parent)
        pressed = self._leaves(topic, parent) or (above is not None and above.pressed)
        circle = above is not None and above.leads_over(self.id)
        verdict, contender = state.hold.judge(
            parent, ways, margin=channels.margin(self.age), pressed=pressed, circle=circle
        )
        match verdict:
            case Verdict.STAY:
                return False
            case Verdict.REPEAT:
                said = state.hold.said
                if said is None or said.leads_over(self.id):
                    return False
                state.heard[parent] = replace(said, seq=state.seq)
                return self._follow(state, parent)
            case Verdict.MOVE:
                state.cost, state.best = ways[contender], contender
                return True
            case _:
                assert_never(verdict)

    def joins(self, neighbour: int) -> Joins:
        topics = {
            topic
            for topic, state in self.topics.items()
            if state.parent == neighbour and topic not in self.published and self.needs(topic)
        }
        return self._ask(neighbour, topics, whole=True)

    def _ask(self, neighbour: int, topics: set[int], *, whole: bool = False) -> Joins:
        link = self.in_links[neighbour]
        wants = {topic: self._want(topic, neighbour) for topic in sorted(topics)}
        if link.channel in self.owned:
            for topic, asked in wants.items():
                self.owned[link.channel].renew(topic, link.arc, self.round, loss=asked.loss)
        return Joins(self.id, wants, whole, self._told(link.channel))

    def _requests(self, topic: int) -> int:
        below = sum(want.requests for want in self.topics[topic].below.values())
        return below + (topic in self.subscribed)

    def _want(self, topic: int, parent: int) -> Want:
        """What we ask for, and what we should lose if ``parent`` did not give it."""
        state = self.topics[topic]
        here = int(self._wants(topic))
        below = list(state.below.values())
        hurry = state.hurried == self.round or self._leaves(topic, parent)
        if parent not in state.heard:
            return want([], below, parent=parent, here=here, hurry=hurry)
        now = state.heard[parent].cost + self.in_links[parent].cost
        detours = [
            Detour(max(0.0, state.way(neighbour) - now), route.path)
            for neighbour, route in state.heard.items()
            if neighbour != parent and self.id not in route.path
        ]
        detours.append(Detour(max(0.0, self.penalty - now), ()))
        return want(detours, below, parent=parent, here=here, hurry=hurry)

    def _leaves(self, topic: int, parent: int) -> bool:
        link = self.in_links[parent]
        return channels.leaves(self._price(link.channel), capacity=link.capacity, topic=topic)

    def _price(self, channel: int) -> Price:
        owned = self.owned.get(channel)
        return self.prices.get(channel, NO_PRICE) if owned is None else owned.price(self.rates)

    def on_joins(self, message: Joins) -> dict[int, Joins]:
        self.prices.update(message.prices)
        arc, channel = self.out_arcs[message.sender]
        owned = self.owned.get(channel)
        lacking: dict[int, set[int]] = {}
        for topic in sorted(message.topics):
            state = self.topics.setdefault(topic, TopicState())
            needed = self.needs(topic)
            state.children[message.sender] = self.round
            state.below[message.sender] = message.topics[topic]
            hurry = message.topics[topic].hurry and state.hurried < self.round
            if hurry:
                state.hurried = self.round
            if owned is not None:
                owned.renew(topic, arc, self.round, loss=message.topics[topic].loss)
            if (hurry or not needed) and state.parent is not None:
                lacking.setdefault(state.parent, set()).add(topic)
        asked = {parent: self._ask(parent, topics) for parent, topics in lacking.items()}
        if message.whole:
            asked |= {parent: self.joins(parent) for parent in self._drop_child(message)}
        return asked

    def _drop_child(self, message: Joins) -> set[int]:
        arc, channel = self.out_arcs[message.sender]
        parents = set()
        for topic, state in self.topics.items():
            if message.sender not in state.children or topic in message.topics:
                continue
            state.drop(message.sender)
            if channel in self.owned:
                self.owned[channel].release(topic, arc)
            if state.parent is not None and not self.needs(topic):
                self._release(topic, state.parent)
                parents.add(state.parent)
        return parents

    def _release(self, topic: int, neighbour: int) -> None:
        link = self.in_links[neighbour]
        if link.channel in self.owned:
            self.owned[link.channel].release(topic, link.arc)
