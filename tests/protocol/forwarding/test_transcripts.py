"""Routes of topics and frames, as filters, destinations, rules and plans change."""

from pathlib import Path

from federator.protocol.effects import FilterRoute
from federator.protocol.filters import filter_key
from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import KEPT, Forwarder
from federator.protocol.forwarding.frames import KEY_BYTES
from federator.protocol.forwarding.keeping import POLICIES
from federator.protocol.messages.destinations import destination_key
from tests.transcripts import play, scenes


class Stage:
    """The routing tables of one agent.

    ``route FILTER`` takes ``>2`` (a next hop), ``=5`` (a destination), ``here`` (a client of our
    broker wants it), ``wanted``, ``collected`` or ``gone``; ``way 5 2``: what is for 5 goes to 2.
    ``topic`` prints the filters that a frame would name, and next hops with the places of the
    filters that they are responsible for; ``frame`` what becomes of one that names these filters
    and destinations.
    """

    def __init__(self):
        self._table()

    def do(self, command, *words):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--")]
        return getattr(self, f"_{command}")(*words, **options) or ()

    def _table(self, *, kept=""):
        self.kept = kept
        self.forwarder = Forwarder(allows_export=lambda topic: topic != self.kept)

    def _rules(self, *, kept):
        self.kept = kept
        self.forwarder.follow_rules()

    def _route(self, filter_, *words):
        hops, ends = ([int(word[1:]) for word in words if word[0] == sign] for sign in ">=")
        route = FilterRoute(
            local="here" in words,
            wanted="wanted" in words or bool(hops or ends),
            next_hops=tuple(hops),
            destinations=tuple(ends),
            collected="collected" in words,
        )
        self.forwarder.set_route(filter_, None if "gone" in words else route)

    def _way(self, end, hop):
        self.forwarder.set_destination(int(end), None if hop == "none" else int(hop))

    def _keep(self, policy):
        self.forwarder.keep(POLICIES.get(policy))

    def _share(self, *filters):
        self.forwarder.share(frozenset(filters))

    def _widen(self, *doubted):
        self.forwarder.widen(bool(doubted), frozenset(doubted))

    def _topic(self, *topics):
        for topic in topics:
            route = self.forwarder.route_topic(topic)
            assert self.forwarder.keeps(topic) is (route is KEPT)
            if route in (None, KEPT):
                yield f"{topic} nowhere" if route is None else f"{topic} kept"
            else:
                yield " ".join([topic, *map(self._named, split(route.keys)), *sent(route)])

    def _named(self, key):
        filters = self.forwarder.filters_with(key)
        return filters[0] if filters else f"={int.from_bytes(key[-4:], 'big')}"

    def _frame(self, *names, mask="0", sender, origin):
        filters = b"".join(
            key.to_bytes(KEY_BYTES, "big")
            for key in sorted(filter_key(name) for name in names if name[0] != "=")
        )
        ends = b"".join(destination_key(int(name[1:])) for name in names if name[0] == "=")
        ids = {"sender": int(sender), "origin": int(origin)}
        route = self.forwarder.route_frame(filters + ends, int(mask), **ids)
        words = ["delivered"] * route.deliver + ["in doubt"] * route.in_doubt
        yield " ".join([*words, *sent(route)]) or "nowhere"

    def _explain(self, topic):
        found = explain(self.forwarder, topic)
        yield " ".join([found.why, *(f">{hop}" for hop in found.next_hops)])
        yield " ".join(match.filter for match in found.filters) or "no filter"


def split(keys):
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def sent(route):
    return [f">{hop}:{int.from_bytes(mask, 'little'):b}" for hop, mask in route.sends]


@scenes(Path(__file__).with_name("routes.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
