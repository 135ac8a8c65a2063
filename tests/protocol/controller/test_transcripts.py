"""The controller among real nodes: elections, takeovers, returns, splits, draining."""

from collections import defaultdict
from pathlib import Path

from federator.protocol.effects import StepIn
from federator.protocol.events import NeighbourDisconnected, Received
from federator.protocol.messages.control import Bye
from federator.protocol.messages.session_records import FlowRow
from tests.protocol.controller.brokers import Brokers, kept
from tests.protocol.network import grid_links
from tests.transcripts import play, scenes

RING = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (2, 4), (2, 5), (3, 5)]
LINKS = {"ring": RING, "grid": list(grid_links(3, 3))}


class Dead:
    """An agent that is no more."""

    def handle(self, event, *, now_ms):
        return []

    def next_deadline_ms(self):
        return None


class Stage:
    """Brokers whose agents announce them; ``run MS`` prints what changed in their guides.

    ``1 2 3 5: controller 1 in term 1, decision 2; 4 gone; 4>5``: the guides of these brokers say
    so, and 5 has taken over from 4. What a substitute prepares is printed with the sessions.
    """

    def do(self, command, *words):
        return getattr(self, f"_{command}")(*words) or ()

    def _brokers(self, *links):
        pairs = [tuple(map(int, link.split("-"))) for link in links if link not in LINKS]
        self.brokers = Brokers(LINKS.get(links[0], pairs))
        self.views = {}
        return self._run(5_000)

    def _run(self, ms):
        self.brokers.steps.clear()
        self.brokers.run(int(ms))
        before, self.views = self.views, {n: view(g) for n, g in self.brokers.guides.items()}
        groups = defaultdict(list)
        for node, seen in sorted(self.views.items()):
            if seen != before.get(node):
                groups[seen].append(str(node))
        yield from (f"{' '.join(nodes)}: {seen}" for seen, nodes in groups.items())
        for node, step in self.brokers.steps:
            if isinstance(step, StepIn):
                told = sorted(f"{row.client}:{row.topic}" for row in step.sessions)
                missed = f"missed at {step.missed_at_ms}"
                yield " ".join([f"{node} steps in for {step.broker}", missed, *told])
            else:
                yield f"{node} steps back for {step.broker}"

    def _plan(self, broker, at):
        """Who would step in for it, best first, as the guide at a broker says."""
        (found,) = (b for b in self.brokers.guides[int(at)].brokers if b.id == int(broker))
        yield " ".join(map(str, found.substitutes))

    def _plans(self, at):
        for broker in self.brokers.guides[int(at)].brokers:
            yield f"{broker.id}: {' '.join(map(str, broker.substitutes))}"

    def _load(self, load, *brokers):
        for broker in brokers:
            self.brokers.say(int(broker), load=int(load))

    def _rows(self, broker, *rows):
        """``c:a/#`` of a session that lasts, ``c:a:off`` of one that is not connected."""
        self.brokers.rows(int(broker), *map(row_of, rows))

    def _table(self, broker, at):
        table = self.brokers.nodes[int(at)].failover.table
        yield " ".join(sorted(f"{row.client}:{row.topic}" for row in table.rows(int(broker))))

    def _kill(self, broker):
        self.brokers.kill(int(broker))

    def _revive(self, broker, *forgets):
        self.brokers.revive(int(broker), forgets=bool(forgets))

    def _drain(self, broker, at):
        self.brokers.drain(at=int(at), broker=int(broker))

    def _undrain(self, broker, at):
        self.brokers.drain(at=int(at), broker=int(broker), drain=False)

    def _cut(self, a, b):
        self.brokers.cut(int(a), int(b))

    def _link(self, a, b):
        self.brokers.connect(int(a), int(b))
        self.brokers.connect(int(b), int(a))

    def _agent_dies(self, broker, *neighbours):
        """These neighbours read its Will; their connections to its broker stand."""
        node, now_ms = self.brokers.nodes[int(broker)], self.brokers.now_ms
        for neighbour in map(int, neighbours):
            bye = Bye(int(broker), node.links.epoch, node.links.neighbours[neighbour].conn)
            self.brokers.at(now_ms, neighbour, Received(bye))
        self.brokers.nodes[int(broker)] = Dead()

    def _broker_dies_too(self, broker):
        for (owner, conn), target in list(self.brokers._conns.items()):
            if target == int(broker):
                self.brokers.at(self.brokers.now_ms, owner, NeighbourDisconnected(conn))


def view(guide):
    states = [f"{broker.id} {broker.state}" for broker in guide.brokers if broker.state != "up"]
    moved = [f"{t.broker}>{t.substitute}" for t in guide.takeovers]
    words = [" ".join(words) for words in (states, moved) if words]
    head = f"controller {guide.controller} in term {guide.epoch}, decision {guide.number}"
    return "; ".join([head, *words])


def row_of(text):
    client, topic, *how = text.split(":")
    if how in (["pub"], ["brief"]):
        return FlowRow(client, "pub" if how == ["pub"] else "sub", topic)
    return kept(client, topic, on=how != ["off"], gateway=how == ["gateway"])


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, Stage())
