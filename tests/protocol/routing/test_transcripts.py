"""docs/protocol.md 6 and 7, and who only collects: what a few brokers do, step by step."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from federator.protocol.events import (
    CollectsChanged,
    LeaveRequested,
    LocalBrokerDown,
    PriorityChanged,
    StatusChanged,
)
from federator.protocol.messages.session_records import BrokerRecord
from federator.protocol.parameters import Strategy
from tests.protocol.network import PARAMETERS, Network, grid_links
from tests.transcripts import play, scenes


class Stage:
    """A network of brokers; ``run MS`` prints of every broker what changed of its filters' routes.

    ``core 1 of 0: 3*>2+4``: at broker 3 the mesh of f has the core 1, had 0, and still feeds that;
    publications go on to 2 and 4. Marks: ``*`` clients here want it, ``-`` no other broker does,
    ``!`` the broker announces it as its core, ``~`` it is only collected. Other filters are named.
    ``network`` takes links, ``line4`` or ``grid3x3``, and ``--name=value`` of the parameters.
    """

    def do(self, command, *words):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--")]
        return getattr(self, f"_{command}")(*words, **options) or ()

    def _network(self, *links, strategy="mesh", **options):
        values = {name: int(value) for name, value in options.items()}
        parameters = replace(PARAMETERS, strategy=Strategy(strategy), **values)
        costs = {pair: cost for pair, cost in links_of(*links) if cost}
        self.network = Network(ends(links), costs=costs, parameters=parameters)
        self.network.run(1_000)
        self.before = self._state()

    def _run(self, ms):
        network, before = self.network, self.before
        lost, notices, sent = len(network.lost), len(network.notices), len(network.sent)
        network.run(int(ms))
        self.before = self._state()
        groups = defaultdict(list)
        for node, filter_ in sorted(before | self.before):
            now = self.before.get((node, filter_), ("gone", str(node)))
            if now != before.get((node, filter_)):
                groups["" if filter_ == "f" else f"{filter_} ", now[0]].append(now[1])
        for (filter_, core), nodes in sorted(groups.items()):
            yield f"{filter_}{core}: {text(nodes)}"
        told = defaultdict(list)
        for node, filter_ in sorted(network.lost[lost:]):
            told[f"{filter_} lost"].append(node)
        for _, node, notice in network.notices[notices:]:
            if not notice.name.startswith("link."):
                details = (f"{key}={value}" for key, value in notice.details.items())
                told[" ".join([notice.name, *details])].append(node)
        yield from (f"{what} at {text(nodes)}" for what, nodes in told.items())
        self.sent = [type(message).__name__ for *_, message in network.sent[sent:]]

    def _sent(self, kind):
        """How many such messages in the last run."""
        yield str(self.sent.count(kind))

    def _ways(self, core):
        """Cost and parents towards a core, and the number of its last announcement."""
        for node, each in self.network.nodes.items():
            if route := each.announcements.routes.get(int(core)):
                cost = "forgotten" if route.forgotten else route.cost
                yield f"{node}: {cost} by {text(route.parents)} {route.number}"

    def _children(self, node):
        """The cores of meshes in which a broker has children, and these."""
        children = self.network.nodes[int(node)].meshes.children
        yield from (f"core {core}: {text(children[core])}" for core in sorted(children))

    def _next_hops(self):
        """On the shortest paths, as ``1: 3>2``: to 3 by 2."""
        for node, each in self.network.nodes.items():
            ways = each.topic_routing.next_hops
            yield f"{node}: {text(f'{end}>{hop}' for end, hop in sorted(ways.items()))}"

    def _priority(self, node, priority):
        self._at(node, PriorityChanged(int(priority)))

    def _subscribe(self, node, *filters):
        self.network.subscribe(int(node), *filters)

    def _unsubscribe(self, node, *filters):
        self.network.unsubscribe(int(node), *filters)

    def _collects(self, node, *filters):
        self._at(node, StatusChanged(BrokerRecord()))
        self._at(node, CollectsChanged(frozenset(filters)))

    def _leave(self, node):
        self._at(node, LeaveRequested())

    def _deaf(self, node):
        """Its broker dies and its links stay."""
        self._at(node, LocalBrokerDown())

    def _restart(self, node, epoch):
        self.network.restart(int(node), epoch=int(epoch))

    def _link(self, a, b):
        self.network.connect(int(a), int(b))
        self.network.connect(int(b), int(a))

    def _cut(self, *links):
        for a, b in ends(links):
            self.network.cut(a, b)

    def _at(self, node, event):
        self.network.at(self.network.now_ms, int(node), event)

    def _state(self):
        """``("core 1 of 0", "3*>2+4")`` of each node and filter."""
        found = {}
        for (node, filter_), route in self.network.routes.items():
            each = self.network.nodes[node]
            state = each.meshes.states.get(filter_)
            if route is None and state is None:
                if filter_ in each.topic_routing.states:
                    found[node, filter_] = "kept", str(node)
                continue
            core, marks, hops = "straight", "", ()
            if state is not None:
                core = f"core {state.core}"
                core += "" if state.previous is None else f" of {state.previous}"
                marks = "!" * (filter_ in each.announcements.own.filters)
            if route is not None:
                marks += "*" * route.local + "~" * route.collected + "-" * (not route.wanted)
                hops = (*route.next_hops, *route.destinations)
            found[node, filter_] = (
                core,
                f"{node}{marks}" + ">" * bool(hops) + "+".join(map(str, hops)),
            )
        return found


def text(ids):
    return " ".join(map(str, ids)) or "none"


def links_of(*words):
    """Links with their costs, if those are said, as in ``1-2:5``."""
    for word in words:
        if word.startswith("line"):
            yield from (((i, i + 1), 0) for i in range(int(word[4:]) - 1))
        elif word.startswith("grid"):
            yield from ((link, 0) for link in grid_links(*map(int, word[4:].split("x"))))
        else:
            link, _, cost = word.partition(":")
            a, b = map(int, link.split("-"))
            yield (a, b), int(cost or 0)


def ends(links):
    return [link for link, _ in links_of(*links)]


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
