"""What rules let through: at the edge of a broker, on a link, and where names differ."""

from pathlib import Path

from federator.protocol.filters.renames import Renames
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.policy.rules import Denied, EdgeRules, LinkRules
from federator.runtime.mqtt.wire import inbound_of
from tests.protocol.policy.test_link_policies import GUARDED, frame, packet
from tests.transcripts import play, scenes


class Stage:
    """One broker's rules, and those of one link.

    ``exports`` and ``announces`` print what the rules of the edge let out, ``passes`` topics that
    leave under these names of the federation, ``asks`` what a client's filter asks for there, and
    ``change`` what the federation hears of clients' filters; ``enters`` and ``leaves`` are about
    the link. ``comes`` and ``goes`` take a frame of publications on these topics, ``a:1`` at QoS 1,
    from and to the neighbour, and print those that cross, and how many were withheld so far.
    """

    def __init__(self):
        self.link, self.others = LinkRules(), LinkRules()
        self.policies = LinkPolicies()

    def do(self, command, *words):
        options = [word[2:].split("=", 1) for word in words if word.startswith("--")]
        options = {f"{name}s".replace("keeps", "keep"): text for name, text in options}
        words = [word for word in words if not word.startswith("--")]
        return getattr(self, f"_{command.replace('-', '_')}")(*words, **options) or ()

    def _policy(self, *, denys="", renames=None, **edge):
        pairs = () if renames is None else [tuple(renames.split("="))]
        self.wanted = set()
        self.policy = BrokerPolicy(edge_of(**edge), Denied(listed(denys)), Renames(pairs))

    def _follow(self, **edge):
        yield from printed(self.policy.follow(edge_of(**edge), Denied(), self.wanted))
        yield f"{self.policy.not_imported} not imported"

    def _link(self, *, denys="", **both):
        sides = {name: listed(text) for name, text in both.items()}
        self.link = LinkRules(deny=listed(denys), **sides)
        changed = self.policies.follow({GUARDED: self.link}, self.others)
        yield ("changed" if changed else "as before") + ", active" * self.policies.active

    def _others(self, *, denys):
        self.others = LinkRules(deny=listed(denys))
        self.policies.follow({GUARDED: self.link}, self.others)

    def _comes(self, *topics, senders=GUARDED):
        made = frame(*map(packet_on, topics), sender=int(senders))
        return self._crossing(topics, made, self.policies.incoming(made))

    def _goes(self, *topics):
        made = frame(*map(packet_on, topics))
        run = bytes(made.body)
        crossed = self.policies.outgoing(GUARDED, made, [run[:7], run[7:]])
        return self._crossing(topics, made, crossed)

    def _crossing(self, topics, made, crossed):
        policies = self.policies
        if crossed is made:
            yield "the same frame"
        elif crossed is None:
            yield "nothing"
        else:
            left = [packet.topic for packet, _, _ in inbound_of(bytes(crossed.body))]
            packets = [packet_on(topic) for topic in topics if topic.partition(":")[0] in left]
            assert bytes(crossed.body) == b"".join(packets)
            assert len(packets) == crossed.publications
            yield from left
        yield f"withheld {policies.withheld_in} in, {policies.withheld_out} out"

    def _exports(self, *topics):
        return filter(self.policy.edge.allows_export, topics)

    def _announces(self, *filters):
        return filter(self.policy.edge.announces, filters)

    def _denies(self, *topics):
        return filter(self.policy.denied.topic, topics)

    def _denies_filters(self, *filters):
        return filter(self.policy.denied.filter, filters)

    def _passes(self, *topics):
        return filter(self.policy.allows_export, topics)

    def _asks(self, filter_):
        return self.policy.exported_filters(filter_)

    def _why(self, topic):
        yield self.policy.why_not(topic) or "it leaves"

    def _change(self, *words):
        added, removed = ([word[1:] for word in words if word[0] == sign] for sign in "+-")
        self.wanted = self.wanted.union(added).difference(removed)
        return printed(self.policy.change(added, removed))

    def _enters(self, *topics):
        return filter(self.link.allows_import, topics)

    def _leaves(self, *topics):
        return filter(self.link.allows_export, topics)

    def _stops(self):
        yield "nothing" if self.link.stops_nothing else "something"


def packet_on(text):
    topic, _, qos = text.partition(":")
    return packet(topic, qos=int(qos or 0))


def listed(text):
    return text.split(",") if text else ()


def edge_of(**rules):
    return EdgeRules(**{name: listed(text) for name, text in rules.items()})


def printed(change):
    for sign, filters in zip("+-", change, strict=True):
        if filters:
            yield " ".join([sign, *sorted(filters)])


@scenes(Path(__file__).with_name("rules.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
