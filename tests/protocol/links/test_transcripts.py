"""docs/protocol.md 4: when a link is up, and with which neighbour."""

from pathlib import Path

from msgspec.structs import replace

from federator.protocol.effects import (
    CallOff,
    Dial,
    HangUp,
    NeighbourReachable,
    NeighbourUnreachable,
    Notice,
    Send,
)
from federator.protocol.events import LinksConfigured, NamedNeighbour
from federator.protocol.links.configured import follow
from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.links.outbox import Credit
from federator.protocol.links.standing import LinkJudge, TurnedAway, Way, stand
from federator.protocol.messages.control import Bye, Hello
from federator.protocol.parameters import LinkCost, Parameters
from federator.protocol.signals import LinkCostChanged, LinkDown, LinkUp, OwnIdHeard
from tests.protocol.links.test_links import heard, hello, links, up_links
from tests.transcripts import play, scenes

SAID = ("link.up", "link.down")
"""Notices that say what other steps do."""


class Stage:
    """The links of agent 1 in epoch 100, whose broker is at b1.

    A command begins with the time in ms, if that matters. ``linked`` is a link to agent 2 over
    connection 1 since 10 ms. Of what the other agent says, ``hello SENDER hears=CONN`` names only
    what differs from the first life of it, epoch 50 at its connection 1. ``configure`` is what the
    operator says: ``b2,id=2,cost=7``, ``given_up=b2``, ``delay`` for costs that are measured.
    """

    def __init__(self):
        self.links = links()

    def do(self, *words):
        now_ms, words = (int(words[0]), words[1:]) if words[0].isdecimal() else (0, words)
        before = self._state()
        if words[0] == "linked":
            self.links = up_links()
            return
        if words[0] == "links":
            options = dict(word.split("=") for word in words[1:])
            outboxes = frozenset(map(int, filter(None, options.get("outboxes", "").split(","))))
            parameters = Parameters(dial_back=options.get("dial_back") != "0", outboxes=outboxes)
            self.links = Links(1, 100, options.get("at", "b1"), parameters)
            self.links.on_local_up(now_ms=0)
            return
        if words[0] == "stand":
            yield self._standing(words[1:], now_ms)
            return
        if words[0] == "namesake":
            is_one = self.links.has_namesake(greeting(*words[1:]), now_ms=now_ms)
            yield "a namesake" if is_one else "no namesake"
            return
        if words[0] == "round_trip":
            yield f"{self.links.neighbours[int(words[1])].round_trip_ms} ms"
            return
        steps = self._obey(*words, now_ms=now_ms)
        yield from filter(None, map(self._line, steps))
        yield from (line for line in self._state() if line not in before)

    def _obey(self, command, *words, now_ms):
        made = self.links
        match command:
            case "connected":
                conn, address, *expected = words
                found = [int(word[6:]) for word in expected if word.startswith("found=")]
                ids = [int(word) for word in expected if word.isdecimal()]
                connection = LinkConnection(int(conn), address, *(ids or [None]), 1)
                connection.found = found[0] if found else None
                connection.takes_outbox = "takes_outbox" in expected
                return made.on_connected(connection, now_ms=now_ms)
            case "hellos":  # one a second
                for at_ms in range(0, now_ms, 1_000):
                    made.on_hello(greeting(*words), now_ms=at_ms)
                return []
            case "hello":
                return made.on_hello(greeting(*words), now_ms=now_ms)
            case "configure":
                return follow(configured(words), made, now_ms=now_ms)
            case "bye":
                return made.on_bye(Bye(*map(int, words)))
            case "disconnected":
                return made.on_disconnected(int(words[0]))
            case "deadline":
                return made.on_deadline(now_ms=now_ms, behind="--behind" in words)
        return {"local_up": made.on_local_up, "local_down": made.on_local_down}[command](
            now_ms=now_ms
        )

    def _standing(self, words, now_ms):
        """Ways are ``ADDRESS,kept,conn=1``; then ``turned=,ADDRESS,WHY`` and ``hindrance=WHY``.

        We may be a ``leaf``. A way over which no hello will ever come is marked.
        """
        ways, turned, hindrances = [], {}, []
        for said in words:
            name, _, value = said.partition("=")
            address, *rest = said.split(",")
            if name == "leaf":
                continue
            if name == "turned":
                turned[2] = TurnedAway(2, *rest)
            elif name == "hindrance":
                hindrances.append(value)
            else:
                fields = dict(part.partition("=")[::2] for part in rest)
                id, conn = (int(fields[n]) if n in fields else None for n in ("id", "conn"))
                failure, refused = fields.get("failure", ""), "refused" in fields
                more = {"peer": fields.get("peer", ""), "outbox_refused": "closed" in fields}
                ways.append(Way(address, id, "kept" in fields, conn, failure, refused, **more))
        judge = LinkJudge(self.links, turned, leaf="leaf" in words)
        found = stand(judge, ways, now_ms=now_ms, hindrances=hindrances)
        never = any(judge.find(way, now_ms=now_ms).unheard for way in ways)
        word = found.word.value + ", well" * found.well + ", never heard" * never
        return "; ".join([word, *found.reasons])

    def _state(self):
        made = self.links
        up = " ".join(f"{id} over {made.up[id].conn}" for id in sorted(made.up))
        return [
            f"links: {up or 'none'}",
            *(f"{conn} leads to {made.addressee(conn) or '?'}" for conn in made.connections),
            *(f"{conn} costs {each.cost}" for conn, each in made.connections.items()),
        ]

    def _line(self, step):
        match step:
            case LinkUp(neighbour):
                return f"up {neighbour}"
            case LinkDown(neighbour):
                return f"down {neighbour}: {self.links.neighbours[neighbour].reason}"
            case Dial(id, address):
                return f"dials {id} at {address}"
            case Send(conn, Hello() as said):
                place = [] if said.address == "b1" else [f"as {said.address}"]
                return " ".join([f"greets over {conn}", *place, *map(word, said.hears)])
            case Send(conn, Bye() as said):
                return f"says bye over {conn}" + " for good" * said.given_up
            case CallOff(id):
                return f"calls off {id}"
            case HangUp(conn):
                return f"hangs up {conn}"
            case LinkCostChanged(neighbour):
                return f"the cost to {neighbour} changed"
            case Notice():
                details = (f"{key}={value}" for key, value in step.details.items())
                return " ".join([step.name, *details]) if step.name not in SAID else ""
            case OwnIdHeard(epoch, by, proven, greeted):
                return f"own id in epoch {epoch}, by {by}, proven={proven}, greeted={greeted}"
            case NeighbourReachable(neighbour, conn):
                return f"reaches {neighbour} over {conn}"
            case NeighbourUnreachable(neighbour):
                return f"reaches {neighbour} no more"
        raise AssertionError(step)


def configured(words):
    named, given_up, by = [], [], LinkCost.DELAY if "delay" in words else LinkCost.HOPS
    for said in (word for word in words if word != "delay"):
        if said.startswith("given_up="):
            given_up.append(said[9:])
        else:
            address, *rest = said.split(",")
            fields = {name: int(value) for name, value in (each.split("=") for each in rest)}
            named.append(NamedNeighbour(address, fields["id"], fields.get("cost")))
    return LinksConfigured(tuple(named), frozenset(given_up), by)


def greeting(sender, *words):
    """``name=value``; ``hears=1,ups=2`` for each that the sender hears."""
    fields = [word.partition("=")[::2] for word in words]
    hears = [heard_in(text) for name, text in fields if name == "hears"]
    rest = {name: text for name, text in fields if name != "hears"}
    address = rest.pop("address", f"b{sender}")
    numbers = {name: int(text) for name, text in rest.items()}
    return replace(hello(int(sender), hears=hears, **numbers), address=address)


def heard_in(text):
    conn, *more = text.split(",")
    fields = dict(each.split("=") for each in more)
    namesakes = tuple(filter(None, fields.pop("namesakes", "").split("+")))
    return heard(int(conn), namesakes=namesakes, **{n: int(v) for n, v in fields.items()})


def word(heard):
    fields = ("epoch", "conn", "sent_at_ms", "held_ms", "ups")
    names = [f"namesakes={'+'.join(heard.namesakes)}"] if heard.namesakes else []
    told = [f"{name}={getattr(heard, name)}" for name in fields]
    return ",".join([f"hears={heard.id}", *told, *names])


class CreditStage:
    """What one sender may publish: a window in bytes and packets, of which ``send`` takes bytes.

    Prints whether a mark is due, what is owed, and when the window is full.
    """

    def do(self, command, *words):
        numbers = tuple(map(int, words))
        if command == "window":
            self.credit = Credit(window_bytes=numbers[0], window_packets=numbers[1])
            return
        credit = self.credit
        if command == "send" and any([credit.on_sent(size) for size in numbers][-1:]):
            yield "a mark is due"
        if command == "fill":
            while credit.open:
                credit.on_sent(*numbers)
        if command == "mark":
            credit.mark()
        if command == "taken":
            credit.on_taken(*(numbers or credit.mark()))
        yield f"owes {credit.owed_bytes} in {credit.owed_packets}" + ", full" * (not credit.open)


@scenes(*Path(__file__).parent.glob("*.txt"))
def test_transcript(path, number):
    play(path, number, CreditStage() if path.stem == "credit" else Stage())
