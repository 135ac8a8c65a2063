"""Strangers: clients without a key who hear and say all below ``$fed/``, as where no ACL is.

One stands at each broker for the length of the fault. They say again what they heard, here and
elsewhere, as it was or changed; they make words up; or they crowd their brokers with
subscriptions, groups and retained values. A signed federation owes what it owes without them.

Source: docs/security.md, "Threats and answers".
"""

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from typing import Final

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.protocol.messages import topics
from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from lab.chaos.stage import Injury, Kind, Stage, soon
from lab.grid.running import FEDERATION

MOVE_S: Final = 0.02
HEARD_MAX: Final = 2_000
AT_ONCE: Final = 10
FILTERS: Final = 300
GROUPS: Final = 300
RETAINED_TOPICS: Final = 2_000
HOLD_S: Final = (5.0, 10.0)

WORDS: Final = tuple(
    topic(FEDERATION)
    for topic in (
        *(topics.claims_topic, topics.cover_topic, topics.data_topic, topics.drain_topic),
        *(topics.fetch_topic, topics.mark_topic, topics.recall_topic, topics.retained_mark_topic),
        *(topics.sessions_topic, topics.settle_topic, topics.agents_topic, topics.trace_topic),
    )
)
"""Where strangers speak, besides where they heard somebody."""

Move = Callable[["Strangers", random.Random], None]


class _Stranger(LinkObserver):
    """One connection that hears everything."""

    def __init__(self, place: tuple[str, int], name: str, heard: deque[tuple[str, bytes]]) -> None:
        self.link = MqttLink(Endpoint(*place), self, client_id=name)
        self.link.subscribe([TopicFilter("$fed/#", max_qos=QoS.AT_LEAST_ONCE, no_local=True)])
        self._heard = heard

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self._heard.extend((packet.topic, bytes(packet.payload)) for packet, _, _ in publishes)


class Strangers:
    """One stranger at each broker, all of one mind.

    ``said``: how much they published or asked for.
    """

    def __init__(self, stage: Stage, move: Move, rng: random.Random) -> None:
        self.said = 0
        self.heard: deque[tuple[str, bytes]] = deque(maxlen=HEARD_MAX)
        self._brokers = stage.grid.brokers
        self._move = move
        self._rng = rng
        self.each: list[_Stranger] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self) -> None:
        self.each = [
            _Stranger((broker.host, broker.port), f"stranger-{here}", self.heard)
            for here, broker in self._brokers.items()
        ]
        runs = [each.link.run() for each in self.each]
        self._tasks = [asyncio.create_task(run) for run in (*runs, self._go_on())]

    async def leave(self) -> None:
        for each in self.each:
            for number in range(RETAINED_TOPICS if self._move is set_retained else 0):
                self.publish(each.link, f"stranger/{number}", b"", retain=True)
        await asyncio.sleep(MOVE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self.each:
            await each.link.close(keep_session=False)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(MOVE_S)
            self._move(self, self._rng)

    def someone(self, rng: random.Random) -> MqttLink:
        return rng.choice(self.each).link

    def publish(self, link: MqttLink, topic: str, payload: bytes, *, retain: bool = False) -> None:
        packet = PublishPacket(topic, payload, retain=retain)
        self.said += link.write_packets((packet.write(),), 1)


def say_again(strangers: Strangers, rng: random.Random) -> None:
    for _ in range(AT_ONCE if strangers.heard else 0):
        topic, payload = rng.choice(strangers.heard)
        if payload and rng.random() < 0.3:
            at = rng.randrange(len(payload))
            payload = rng.choice((payload[:at], payload + b"x", payload[:at] + rng.randbytes(4)))
        strangers.publish(strangers.someone(rng), topic, payload)


def make_up(strangers: Strangers, rng: random.Random) -> None:
    for _ in range(AT_ONCE):
        who = rng.randint(0, 20)
        word = {
            "gateway": f"g{who}",
            "token": str(rng.getrandbits(32)),
            "filters": [f"stranger/{rng.randint(0, 99)}"],
            "broker": who,
            "drain": True,
            "number": rng.getrandbits(53),
        }
        payload = rng.choice((json.dumps(word).encode(), rng.randbytes(40), b"", b"%d" % who))
        strangers.publish(strangers.someone(rng), rng.choice(WORDS), payload)


def crowd(strangers: Strangers, rng: random.Random) -> None:
    if rng.random() < 5 * MOVE_S:  # about five times a second
        link, first = strangers.someone(rng), rng.randint(0, 99)
        filters = [f"stranger/{first}/{number}" for number in range(FILTERS)]
        link.subscribe(TopicFilter(each) for each in filters)
        link.unsubscribe(filters)
        strangers.said += 1


def join_groups(strangers: Strangers, rng: random.Random) -> None:
    if rng.random() < MOVE_S:
        names = (f"$share/g{rng.randint(0, GROUPS)}/stranger/#" for _ in range(AT_ONCE))
        strangers.someone(rng).subscribe(TopicFilter(name) for name in sorted(set(names)))
        strangers.said += 1


def set_retained(strangers: Strangers, rng: random.Random) -> None:
    for _ in range(AT_ONCE):
        topic = f"stranger/{rng.randrange(RETAINED_TOPICS)}"
        strangers.publish(strangers.someone(rng), topic, rng.randbytes(20), retain=True)


def _lacks(stage: Stage) -> str:
    return "" if stage.grid.signed else "an open federation believes anybody: --signed"


def _kind(name: str, what: str, move: Move) -> Kind:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        hold_s = stage.span_s(rng, HOLD_S)
        each = Strangers(stage, move, random.Random(rng.getrandbits(32)))
        felt, victims = soon(lambda: each.said > 0), frozenset({"strangers"})
        return Injury(kind.name, victims, f"{hold_s:g} s", hold_s, each.come, each.leave, felt)

    kind = Kind(f"strangers-{name}", what, draw, _lacks)
    return kind


STRANGERS: Final = (
    _kind("repeat", "strangers say again and change what they heard", say_again),
    _kind("lie", "strangers make up words of gateways, operators and agents", make_up),
    _kind("crowd", "strangers subscribe and drop hundreds of filters at once", crowd),
    _kind("groups", "strangers join shared groups without end", join_groups),
    _kind("retain", "strangers set thousands of retained values", set_retained),
)
