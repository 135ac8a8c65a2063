"""Where a publication goes: tables by filter, looked up by topic (origins) or by key (other
agents).

The control plane writes one ``FilterRoute`` per filter; the data plane looks routes up and caches
the answers, because the same topics and the same frames come again and again. An answer about a
topic stays true until a filter changes that matches the topic. So a change leaves a note, the
literal beginning of its filter (``a/b`` of ``a/b/+/c``), and a cached answer is valid if its topic
starts with none of the beginnings noted since the answer was found. So ten thousand clients that
subscribe one by one invalidate only the topics that their filters may match.

Brokers that want a filter over the shortest path are named in a frame one by one, each with a key
of its own, and each is reached through its own next hop.

Two filters with the same 64-bit key cannot be distinguished on the wire. A frame for either is
treated as a frame for both: more is delivered, nothing is lost, and ``set_route`` reports it.

Source: docs/protocol.md section 8.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Final

from federator.protocol.effects import FilterRoute
from federator.protocol.filters import Cover, CoverChange, FilterTrie, may_travel
from federator.protocol.filters.renames import Translate, TranslatedFilters
from federator.protocol.forwarding.frames import FRAME_FILTERS_MAX, KEY_BYTES, keys_in, mask_bytes
from federator.protocol.forwarding.keeping import Keeping, KeepPolicy
from federator.protocol.forwarding.trees import TreeTable
from federator.protocol.messages.destinations import (
    destination_key,
    destination_of,
    destinations_in,
    is_tree_key,
    names_tree,
    positions_of,
)
from federator.protocol.messages.group_records import frame_key
from federator.protocol.types import BrokerId

TOPIC_CACHE_MAX = 65_536
FRAME_CACHE_MAX = 16_384
CACHED_TOPIC_CHARS_MAX = 256  # longer topics are not cached: the cache stays small
CACHED_KEYS_BYTES_MAX = 64 * KEY_BYTES
MATCHES_PER_TURN_MAX = 4_096  # filters, 2.5 us each
FRAME_IN_MATCHES = 24  # the cost of a frame, 60 us, in matches
NOTES_MAX = 256  # older cached answers can no longer be checked against the notes

_EVICTED_SHARE = 16  # a full cache loses this part, oldest first, in one sweep

Sends = tuple[tuple[BrokerId, bytes], ...]
"""Per next hop, ascending: the wire mask of the filters that it must forward."""


@dataclass(frozen=True, slots=True, eq=False)
class TopicRoute:
    """What the origin does with a topic. Equal routes are one object: compare with ``is``."""

    # The keys of the matching filters that others want, as on the wire, followed by those of their
    # destinations.
    keys: bytes
    sends: Sends  # next hops; empty when no route is known now


KEPT: Final = TopicRoute(b"", ())
"""The route of topics that are collected elsewhere, but kept here."""


@dataclass(frozen=True, slots=True)
class FrameRoute:
    """What a receiver does with a frame."""

    deliver: bool  # some client of ours subscribes to one of its filters
    sends: Sends  # next hops
    unknown: int  # filters of the frame that we have no route for
    # The positions, among the frame's keys, of filters that our clients subscribe to.
    local: tuple[int, ...] = ()
    in_doubt: bool = False  # delivered only because we do not know what our clients subscribe to
    rescue: int = 0  # destinations that its tree does not reach from here: forward to these as well
    torn: bytes = b""  # the key of that tree


class Forwarder:
    """The routing tables of one agent."""

    def __init__(
        self,
        *,
        topic_cache_max: int = TOPIC_CACHE_MAX,
        allows_export: Callable[[str], bool] = lambda topic: True,
        here: Translate | None = None,
    ) -> None:
        self.searches = 0  # topics with a route that was not in the cache
        self.matches = 0  # filters that they matched
        self.trees = TreeTable()  # planned trees of some flows
        self.keeping = Keeping()
        # Whether what our clients publish on a topic may leave our broker.
        self.allows_export = allows_export
        # The name of a filter on our broker, where names differ there.
        self._here = None if here is None else TranslatedFilters(here)
        self._on_wanted: Callable[[Sequence[str], Sequence[str]], None] | None = None
        self._topic_cache_max = topic_cache_max  # limit of the topic cache
        self._routes: dict[str, FilterRoute] = {}
        self._filter_by_key: dict[bytes, str] = {}
        # Further filters with the same key, a rare accident.
        self._twins: dict[bytes, tuple[str, ...]] = {}
        self._by_way_of: dict[BrokerId, BrokerId] = {}
        self._destined: Counter[BrokerId] = Counter()  # how many filters each destination wants
        self._trie = FilterTrie()
        self._cover = Cover()
        self._shared: frozenset[str] = frozenset()
        self._wanted_before: dict[str, bool] = {}  # of filters that changed since cover_change
        self._topics: dict[str, tuple[int, TopicRoute | None]] = {}
        self._topic_routes: dict[tuple[bytes, Sends], TopicRoute] = {}
        self._notes: list[str] = []
        self._notes_start = 0
        self._generation = 0
        self._frames: dict[tuple[bytes, int, BrokerId, BrokerId], FrameRoute] = {}
        self._widened = False
        self._doubted = frozenset[str]()

    def __len__(self) -> int:
        """How many filters have a route."""
        return len(self._routes)

    @property
    def widened(self) -> bool:
        """Deliver every frame: we are not sure what our clients subscribe to."""
        return self._widened

    def widen(self, widened: bool, doubted: frozenset[str] = frozenset()) -> None:
        """Set ``widened``; ``doubted`` filters are local for no other reason."""
        before, self._widened, self._doubted = self._doubted, widened, doubted
        self._frames.clear()
        if doubted != before and self.keeping.policy:
            self._note("")

    def keep(self, policy: KeepPolicy | None) -> None:
        """Keep here what only collectors want, as ``policy`` says; ``None``: nothing."""
        if policy is not self.keeping.policy:
            self.keeping.policy = policy
            self._note("")  # the empty string matches every topic

    def keeps(self, topic: str) -> bool:
        """Whether ``topic`` stays here, although some broker collects it."""
        return self.keeping.policy is not None and self.route_topic(topic) is KEPT

    @property
    def topics_cached(self) -> int:
        """How many topics have a cached route."""
        return len(self._topics)

    def wants(self, filter: str) -> bool:
        """Whether other brokers want ``filter``."""
        route = self._routes.get(filter)
        return route is not None and route.wanted

    def set_route(self, filter: str, route: FilterRoute | None) -> tuple[str, ...]:
        """Replace the route of ``filter``, which may travel; ``None`` forgets it.

        Returns the filters that have the same key as a new ``filter``: almost always none.
        """
        others: tuple[str, ...] = ()
        before = self._routes.get(filter)
        if route == before:
            return others
        self._wanted_before.setdefault(filter, self._is_wanted(filter))
        if before is None:
            self._trie.add(filter)
            others = self._add_key(filter)
        if route is None:
            del self._routes[filter]
            self._trie.discard(filter)
            self._discard_key(filter)
        else:
            self._routes[filter] = route
        former = () if before is None else before.destinations
        destinations = () if route is None else route.destinations
        # Mostly neither has any, and counting nothing takes time, too.
        if former is not destinations:
            self._destined.subtract(former)
            self._destined.update(destinations)
        self._frames.clear()
        self._forget_topics(filter)
        return others

    def set_destination(self, broker: BrokerId, next_hop: BrokerId | None) -> None:
        """Send what is for ``broker`` to ``next_hop``; ``None``: no route is known now."""
        if next_hop is None:
            self._by_way_of.pop(broker, None)
        else:
            self._by_way_of[broker] = next_hop
        self._frames.clear()
        if self.is_destination(broker):
            self._note("")  # the empty string matches every topic

    def reach(self, neighbour: BrokerId, up: bool) -> None:
        """Record whether ``neighbour`` can be reached."""
        self.trees.reach(neighbour, up)
        if self.trees.known:
            self.trees_changed()

    def trees_changed(self) -> None:
        """Invalidate the caches: planned trees changed, or began or ceased to hold."""
        self._frames.clear()
        self._note("")  # the empty string matches every topic

    def next_hop_to(self, broker: BrokerId) -> BrokerId | None:
        """The next hop for frames to ``broker``."""
        return self._by_way_of.get(broker)

    def follow_rules(self) -> None:
        """Forget cached topics: the rules that decide which may leave changed."""
        self._topics.clear()

    def share(self, filters: frozenset[str]) -> None:
        """Subscribe exactly ``filters`` in addition: shared groups of other brokers want them."""
        for filter in sorted(filters ^ self._shared):
            self._wanted_before.setdefault(filter, self._is_wanted(filter))
        self.keeping.share(filters - self._shared, self._shared - filters)
        self._shared = filters
        if self.keeping.policy:
            self._note("")

    def route_of(self, filter: str) -> FilterRoute | None:
        return self._routes.get(filter)

    def cover_change(self) -> CoverChange:
        """The subscriptions to change on our broker since the last call."""
        before, self._wanted_before = self._wanted_before, {}
        changed = [f for f, was_wanted in before.items() if was_wanted != self._is_wanted(f)]
        added = [f for f in changed if not before[f]]
        removed = [f for f in changed if before[f]]
        if self._here is not None:
            added, removed = map(sorted, self._here.change(added, removed))
        if self._on_wanted is not None and (added or removed):
            self._on_wanted(added, removed)
        return self._cover.update(added, removed)

    def report_wanted(self, report: Callable[[Sequence[str], Sequence[str]], None]) -> None:
        """Call ``report``, as the cover changes, with the filters that others want now and no
        longer want, by their names on our broker.
        """
        self._on_wanted = report

    def is_destination(self, broker: BrokerId) -> bool:
        """Whether ``broker`` wants any filter over the shortest path."""
        return self._destined[broker] > 0

    def leads_to(self, key: bytes, brokers: AbstractSet[BrokerId]) -> bool:
        """Whether the filter with ``key`` has one of ``brokers`` as a destination."""
        filters = self.filters_with(key)
        return any(not brokers.isdisjoint(self._routes[f].destinations) for f in filters)

    @property
    def cover(self) -> Iterable[str]:
        """What is subscribed on our broker once every ``cover_change`` was performed."""
        return self._cover.filters

    def matching(self, topic: str) -> dict[str, FilterRoute]:
        """The filters that match ``topic``, and their routes."""
        return {filter: self._routes[filter] for filter in self._trie.match(topic)}

    def route_topic(self, topic: str) -> TopicRoute | None:
        """The route of a publication of our own clients; ``None`` when no other broker wants it.

        ``KEPT``: only collectors want it, and it stays here.
        """
        cached = self._topics.get(topic)
        if cached is not None:
            generation, route = cached
            if generation == self._generation:
                return route
            if self._still_true(topic, generation):
                self._topics[topic] = self._generation, route
                return route
        self.searches += 1
        route = self._find_route(topic)
        if len(topic) <= CACHED_TOPIC_CHARS_MAX:
            if len(self._topics) >= self._topic_cache_max and cached is None:
                self._evict_topics()
            self._topics[topic] = self._generation, route
        return route

    def share_of_turn(self, topics: Sequence[str]) -> int:
        """How many of ``topics`` may be routed in one turn of the loop, at least one.

        A topic costs as much as the number of filters that match it, and each distinct route costs
        a frame. Routes that are found are cached.
        """
        before, frames = self.matches, 0
        seen: set[TopicRoute | None] = set()
        for count, topic in enumerate(topics, 1):
            route = self.route_topic(topic)
            if route not in seen:
                seen.add(route)
                if route is not None:
                    frames += FRAME_IN_MATCHES + len(route.keys) // KEY_BYTES
            if self.matches - before + frames > MATCHES_PER_TURN_MAX:
                return count
        return len(topics)

    def route_frame(
        self, keys: bytes, mask: int, *, sender: BrokerId, origin: BrokerId
    ) -> FrameRoute:
        """The route of a frame from another agent.

        Args:
            keys: Its filter keys, as on the wire.
            mask: The filters to forward for: those that no earlier copy was responsible for.
            sender: The neighbour that sent this copy; it gets none back.
            origin: The broker that made the frame; it gets none either.
        """
        question = (keys, mask, sender, origin)
        route = self._frames.get(question)
        if route is None:
            route = self._find_frame_route(keys, mask, sender, origin)
            if len(keys) <= CACHED_KEYS_BYTES_MAX:
                if len(self._frames) >= FRAME_CACHE_MAX:
                    self._frames.clear()
                self._frames[question] = route
        return route

    def _is_wanted(self, filter: str) -> bool:
        """Whether to subscribe ``filter`` on our broker."""
        if filter in self._shared:
            return True
        route = self._routes.get(filter)
        return route is not None and route.wanted and may_travel(filter)

    def _find_route(self, topic: str) -> TopicRoute | None:
        if topic.startswith("$"):
            return None
        routes = self._routes
        matching = self._trie.match(topic)
        self.matches += len(matching)
        flow = [f for f in matching if (route := routes[f]).wanted or route.next_hops]
        if not flow or not self.allows_export(topic):
            return None
        if self.keeping.keeps(topic, ((f, routes[f]) for f in matching), self._doubted):
            return KEPT
        keys, sends = self.route_flow(flow)
        if len(self._topic_routes) >= self._topic_cache_max:
            self._topic_routes.clear()
        return self._topic_routes.setdefault((keys, sends), TopicRoute(keys, sends))

    def route_chains(self, keys: bytes) -> tuple[bytes, Sends]:
        """The keys and next hops of a frame of our own about these filters, whatever their topics.

        The keys returned are ``keys`` and those of destinations.
        """
        hops_of_keys = []
        destinations: set[BrokerId] = set()
        for key in keys_in(keys):
            hops: set[BrokerId] = set()
            for filter in self.filters_with(key):
                hops.update(self._routes[filter].next_hops)
                destinations.update(self._routes[filter].destinations)
            hops_of_keys.append((key, tuple(sorted(hops))))
        return self._label(hops_of_keys, destinations)

    def route_flow(self, flow: Iterable[str]) -> tuple[bytes, Sends]:
        """Keys and next hops for topics that exactly the filters of ``flow`` match."""
        hops_of_keys = []
        destinations: set[BrokerId] = set()
        for filter in flow:
            if (route := self._routes.get(filter)) is not None:
                hops_of_keys.append((self.key(filter), route.next_hops))
                destinations.update(route.destinations)
        hops_of_keys.sort()
        hops_of_keys = hops_of_keys[: max(1, FRAME_FILTERS_MAX - len(destinations))]
        return self._label(hops_of_keys, destinations, self.trees.of_flow(flow))

    def _label(
        self,
        found: list[tuple[bytes, tuple[BrokerId, ...]]],
        destinations: set[BrokerId],
        tree: bytes = b"",
    ) -> tuple[bytes, Sends]:
        """Keys and next hops of a frame; ``found``: each filter key with its mesh hops.

        Destinations are reached by the tree with the key ``tree`` as far as possible.
        """
        children, left = self.trees.steps(tree, frozenset(destinations))
        names = [key for key, _ in found] + [tree for _ in children]
        names += sorted(map(destination_key, destinations))
        keys = b"".join(dict.fromkeys(names))
        position = {key: index for index, key in enumerate(keys_in(keys))}
        masks = dict.fromkeys(children, 1 << position.get(tree, 0))
        for key, next_hops in found:
            for hop in next_hops:
                masks[hop] = masks.get(hop, 0) | 1 << position[key]
        for end in left:
            if (way := self._by_way_of.get(end)) is not None:
                masks[way] = masks.get(way, 0) | 1 << position[destination_key(end)]
        return keys, _sends(masks, len(position))

    def _find_frame_route(
        self, keys: bytes, mask: int, sender: BrokerId, origin: BrokerId
    ) -> FrameRoute:
        unknown = 0
        local: list[int] = []
        certain = not self._widened
        masks: dict[BrokerId, int] = {}
        rescue, torn = 0, b""
        # Around a planned tree the path may lead back through its origin.
        barred = (sender,) if names_tree(keys) else (sender, origin)
        for index, key in enumerate(keys_in(keys)):
            bit = mask & (1 << index)
            if is_tree_key(key):
                children, left = self.trees.steps(key, destinations_in(keys), origin=origin)
                for child in children if bit else ():
                    masks[child] = masks.get(child, 0) | bit
                if bit and left:
                    rescue, torn = rescue | positions_of(left, keys), key
                continue
            filters = self.filters_with(key)
            if not filters:
                end = destination_of(key)
                way = None if end is None else self._by_way_of.get(end)
                unknown += end is None
                if bit and way is not None and way not in barred:
                    masks[way] = masks.get(way, 0) | bit
                continue
            if ours := [filter for filter in filters if self._routes[filter].local]:
                local.append(index)
                certain = certain or not self._doubted.issuperset(ours)
            for filter in filters:
                route = self._routes[filter]
                if bit:
                    for hop in route.next_hops:
                        if hop not in barred:
                            masks[hop] = masks.get(hop, 0) | bit
        sends = _sends(masks, len(keys) // KEY_BYTES)
        deliver = self._widened or bool(local)
        return FrameRoute(deliver, sends, unknown, tuple(local), not certain, rescue, torn)

    def _add_key(self, filter: str) -> tuple[str, ...]:
        key = self.key(filter)
        others = self.filters_with(key)
        if others:
            self._twins[key] = (*others[1:], filter)
        else:
            self._filter_by_key[key] = filter
        return others

    def _discard_key(self, filter: str) -> None:
        key = self.key(filter)
        rest = [other for other in self.filters_with(key) if other != filter]
        if rest:
            self._filter_by_key[key], *twins = rest
            self._twins[key] = tuple(twins)
        else:
            del self._filter_by_key[key]
            self._twins.pop(key, None)

    def filters_with(self, key: bytes) -> tuple[str, ...]:
        """The filters with ``key``: one, or none; several are a rare accident."""
        first = self._filter_by_key.get(key)
        return () if first is None else (first, *self._twins.get(key, ()))

    def key(self, filter: str) -> bytes:
        """The key of ``filter`` in frames."""
        return frame_key(filter).to_bytes(KEY_BYTES, "big")

    def _forget_topics(self, filter: str) -> None:
        """Invalidate cached answers about topics that ``filter`` may match."""
        beginning = _literal_beginning(filter)
        if beginning == filter:
            self._topics.pop(filter, None)
            return
        self._note(beginning)

    def _note(self, beginning: str) -> None:
        self._generation += 1
        self._notes.append(beginning)
        if len(self._notes) > NOTES_MAX:
            dropped = NOTES_MAX // 2
            del self._notes[:dropped]
            self._notes_start += dropped

    def _still_true(self, topic: str, generation: int) -> bool:
        """Whether no filter noted since ``generation`` can match ``topic``."""
        since = generation - self._notes_start
        return since >= 0 and not topic.startswith(tuple(self._notes[since:]))

    def _evict_topics(self) -> None:
        count = max(1, self._topic_cache_max // _EVICTED_SHARE)
        for topic in list(islice(self._topics, count)):
            del self._topics[topic]


def joined(one: Sends, other: Sends, k: int) -> Sends:
    """Both, with one copy of a frame over ``k`` filters for each next hop."""
    masks: dict[BrokerId, int] = {}
    for hop, mask in (*one, *other):
        masks[hop] = masks.get(hop, 0) | int.from_bytes(mask, "little")
    return _sends(masks, k)


def _sends(masks: dict[BrokerId, int], k: int) -> Sends:
    return tuple((hop, mask_bytes(masks[hop], k)) for hop in sorted(masks))


def _literal_beginning(filter: str) -> str:
    """What every topic that matches ``filter`` starts with; ``filter`` itself without wildcards."""
    literal = filter.partition("+")[0].partition("#")[0]
    return filter if len(literal) == len(filter) else literal.removesuffix("/")
