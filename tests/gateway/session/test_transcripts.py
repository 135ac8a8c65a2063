"""A client of a gateway whose brokers die, and what guides say of brokers: what each sees."""

from pathlib import Path

from federator.gateway import wire
from federator.gateway.session.guide_book import GuideBook
from federator.gateway.wire import Reason
from federator.protocol.messages.guide import Guide, GuideBroker, Takeover
from tests.gateway.world import World
from tests.transcripts import play, scenes


class Stage:
    """A client with one broker at a time; each command prints what is new at either.

    ``got``: payloads that came to the client; ``acknowledged``: its own. ``subscribed``: filters
    that the broker has, with the options byte in hex; ``has``: payloads it was handed. Packets move
    at ``settle`` all, and at ``move`` one hop for each word: ``up`` from the client and ``in`` to
    the broker, ``down`` from the broker and ``out`` to the client, which ``answer``s.
    """

    def do(self, command, *words):
        printed = getattr(self, f"_{command.replace('-', '_')}")(*words)
        now = [line for line in self._seen() if line not in self.before]
        self.before = self._seen()
        return [*(printed or ()), *now]

    def _seen(self):
        world = self.world
        client, number = world.client, len(world.brokers)
        filters = [f"{f}:{o:02x}" for f, o in sorted(world.broker.filters.items())]
        lists = {
            "got": [payload.decode() for payload in client.order],
            "acknowledged": sorted(payload.decode() for payload in client.acknowledged),
            f"broker {number} subscribed": filters,
            f"broker {number} has": [payload.decode() for payload in world.broker.handed],
        }
        seen = [f"{name} {' '.join(values)}" for name, values in lists.items() if values]
        self.began |= bool(client.unfinished)
        seen += [f"{client.unfinished} unfinished"] * self.began
        seen += ["dismissed"] * client.dismissed
        return [*seen, f"broker {number}"]

    def _client(self, version, *filters):
        self.began = False  # it has ever left a delivery unfinished
        self.before = ["broker 1"]
        self.world = World(int(version), subscribes=filters)

    def _publish(self, topic, qos):
        self.world.client.publish(topic, int(qos))

    def _subscribe(self, *filters):
        """``FILTER:OPTIONS``; ``id=N`` names the subscription."""
        pairs = [text.rpartition(":") for text in filters if "=" not in text]
        named = [int(text.partition("=")[2]) for text in filters if "=" in text]
        properties = tuple((wire.Property.SUBSCRIPTION_ID, number) for number in named)
        wish = tuple((filter, int(options, 16)) for filter, _, options in pairs)
        self._say(wire.write_request(wire.Subscribe(7, wish, properties), self.world.version))

    def _unsubscribe(self, *filters):
        self._say(wire.write_request(wire.Unsubscribe(8, filters), self.world.version))

    def _say(self, packet):
        self.world.client.outward.bytes += packet

    def _deliver(self, topic, payload, qos, retain=""):
        self.world.broker.deliver(topic, payload.encode(), int(qos), retain=bool(retain))

    def _move(self, *hops):
        world = self.world
        for hop in hops:
            match hop:
                case "up":
                    world.from_client()
                case "in":
                    world.broker.read()
                case "down":
                    world.from_broker()
                case "out":
                    world.client.read()
                case "answer":
                    world.client.answer()

    def _settle(self):
        self.world.settle()

    def _kill(self):
        self.world.kill()

    def _missed(self, topic, payload):
        """What is found that the client missed when it moves."""
        packet = wire.write_publish(
            topic, payload.encode(), version=self.world.version, qos=1, packet_id=1
        )
        self.world.missed = lambda: [packet]

    def _grants(self, filter, code):
        """What the broker answers from now on to a SUBSCRIBE with this filter."""
        self.world.broker.codes[filter] = int(code, 16)

    def _roll_call(self):
        yield f"{self.world.session.subscribe_again()} again"
        self.world.flush()

    def _forget(self):
        """The broker's log does not show the subscriptions."""
        self.world.broker.filters.clear()
        self.before = self._seen()

    def _disconnect(self, reason):
        packet = wire.write_disconnect(Reason[reason.upper()], self.world.version)
        self.world.broker.outward.bytes += packet


@scenes(Path(__file__).with_name("session.txt"))
def test_a_client_keeps_its_session_while_brokers_come_and_go(path, number):
    play(path, number, Stage())


class Guides:
    """What a gateway makes of the guides at its brokers; each command prints what is new.

    ``guide HERE TERM.NUMBER BROKER...``: a broker is up, ``3-`` gone, ``3~`` draining; ``3>4,5``
    are its substitutes, and ``3=5`` says that 5 has stepped in for it.
    """

    def __init__(self):
        self.book = GuideBook()
        self.before = []

    def do(self, command, *words):
        if command == "forget":
            self.book.forget(int(words[0]))
        else:
            self._guide(*words)
        seen = [
            f"{state} {id}" for state in ("gone", "draining") for id in self.book.in_state(state)
        ]
        seen += [f"for {id}: {subs}" for id in range(9) if (subs := self.book.substitutes(id))]
        new = [line for line in seen if line not in self.before]
        ended = [f"not {line}" for line in self.before if line not in seen and "for" not in line]
        self.before = seen
        return new + ended

    def _guide(self, here, age, *words):
        term, number = map(int, age.split("."))
        brokers, takeovers = [], []
        for word in words:
            id, substitutes = int(word[0]), word.partition(">")[2]
            if "=" in word:
                takeovers.append(Takeover(id, int(word[2:]), 1, 1))
                continue
            state = {"-": "gone", "~": "draining"}.get(word[1:], "up")
            listed = tuple(map(int, substitutes.split(","))) if substitutes else ()
            brokers.append(GuideBroker(id, state=state, substitutes=listed))
        self.book.learn(
            Guide(1, "fed", int(here), 1, term, number, tuple(brokers), tuple(takeovers))
        )


@scenes(Path(__file__).with_name("guides.txt"))
def test_guides_of_several_brokers_are_one_book(path, number):
    play(path, number, Guides())
