"""Somebody else writes on an agent's topics: nothing lands that was not asked for."""

import json
import random

import pytest

from federator.collector.collection import CLAIMS_MAX
from federator.errors import DecodeError
from federator.protocol.telemetry.replay import decode_head
from tests.collector.world import ModelAgent, World, line

MESSAGES = 10_000
NUMBERS: list[object] = [
    0,
    -1,
    1,
    2,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
    1.5,
    None,
    "1",
    [],
    {},
]

OWN = ModelAgent(3).spool
GOOD = line(3, OWN, 1, 0)


def forged(agent, first, last, *lines, **other):
    return agent.again(first, last, **other) + b"".join(lines)


def asked_world():
    """An agent with five batches, the first of which is asked for and not answered."""
    agent = ModelAgent(3)
    for _ in range(5):
        agent.flush()
    world = World(agent)
    world.heads()
    world.step(fate=lambda: [])
    assert [(q.first, q.last) for q in world.asked] == [(1, 1)]
    return agent, world


def taken(world, broker=3):
    return max(p.reader.taken for p in world.collection.positions() if p.key[0] == broker)


@pytest.mark.parametrize(
    "lines",
    [
        [line(4, OWN, 1, 0)],
        [GOOD, line(4, OWN, 1, 1)],
        [line(3, "f" * 16, 1, 0)],
        [line(3, OWN, 2, 0)],
        [GOOD, GOOD],
        [line(3, OWN, 1, 1), GOOD],
        [b'{"broker":3}\n'],
        [GOOD[:-20]],
        [GOOD, b"\n"],
        [b"[" * 100_000],
        [b"\xff\xfe\n"],
    ],
)
def test_lines_that_are_not_of_the_batch_that_was_asked_do_not_count(lines):
    agent, world = asked_world()

    assert not world.hear(3, forged(agent, 1, 1, *lines))

    assert taken(world) == 0
    world.settle()
    assert world.check() == {}


def test_batches_that_were_not_asked_for_do_not_count():
    agent, world = asked_world()

    world.hear(3, forged(agent, 2, 2, line(3, agent.spool, 2, 0)))
    world.hear(3, forged(agent, 1, 5, *(line(3, agent.spool, n, 0) for n in range(1, 6))))

    assert taken(world) == 1


def test_another_broker_cannot_answer_for_one():
    agent, world = asked_world()
    other = ModelAgent(4)

    world.hear(4, forged(agent, 1, 1, line(3, agent.spool, 1, 0)))
    assert not world.hear(3, forged(agent, 1, 1, line(4, agent.spool, 1, 0)))
    world.head(other.head())

    assert taken(world) == 0


def test_an_answer_that_contradicts_itself_does_not_count():
    agent, world = asked_world()
    good = line(3, agent.spool, 1, 0)

    for other in (
        {"held_first": 9, "held_last": 2},
        {"held_first": 1, "held_last": 1, "batch_last": 2},
    ):
        assert not world.hear(3, forged(agent, 1, 1, good, **other))

    assert taken(world) == 0


def mutated(rng, payload):
    data = bytearray(payload)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 30)]
            case 2:
                data[at:at] = data[at : at + rng.randint(1, 300)]
            case 3:
                data[at:at] = rng.choice([b"\n", b'"', b"}", b"9" * 30, b"[" * 2_000, b"\xff"])
            case 4:
                del data[at:]
        if not data:
            break
    return bytes(data)


def absurd(rng, payload):
    """The same with a value of another kind or size somewhere in its first line."""
    head, newline, rest = payload.partition(b"\n")
    fields = json.loads(head)
    fields[rng.choice(list(fields))] = rng.choice(NUMBERS)
    return json.dumps(fields).encode() + newline + rest


def test_ten_thousand_mutated_messages_land_nothing_that_was_not_asked_for():
    """Who knows the token may forge records of what is asked just then; nothing else."""
    rng = random.Random(20)
    agents = [ModelAgent(broker, answer_batches=2) for broker in (3, 4)]
    world = World(*agents, bytes_max=200_000)
    refused = most = 0

    for number in range(MESSAGES):
        agent = rng.choice(agents)
        if number % 1_000 == 0:
            for each in agents:
                each.lose_disk()  # a forged answer may have ended the spool
        if number % 10 == 0:
            agent.flush()
            world.heads()
            world.step(fate=lambda: rng.choice([[10], [10], []]))
            most = max(most, world.collection.bytes_held, sum(map(len, world.on_wire)))
        batch = max([q.first for q in world.asked if q.broker == agent.broker], default=1)
        answer = agent.again(batch, batch) + line(agent.broker, agent.spool, batch, 0)
        spoil = rng.choice([mutated, absurd])
        broker = rng.choice([3, 4])
        if rng.random() < 0.3:
            refused += not told(world, broker, spoil(rng, agent.head()))
        else:
            refused += not world.hear(broker, spoil(rng, answer))

    assert refused > MESSAGES // 3
    assert most < 200_000
    assert len(list(world.collection.positions())) < 2 * 10 + 2 * CLAIMS_MAX + 2
    assert sum(len(pieces) for pieces in world.landed.values()) > 50
    assert set(world.landed) <= {(a.broker, spool) for a in agents for spool in a.written}
    for (broker, spool), pieces in world.landed.items():
        following = 1
        for piece in pieces:
            assert piece.first == following
            following = piece.last + 1
            text = b"".join(piece.lines).decode(errors="replace")
            rows = [json.loads(each) for each in text.split("\n")[:-1]]
            assert all((row["broker"], row["spool"]) == (broker, spool) for row in rows)
            places = [(row["batch"], row["row"]) for row in rows]
            assert places == sorted(set(places))
            assert piece.first <= places[0][0] <= places[-1][0] <= piece.last


def told(world, broker, payload):
    """Whether ``payload`` is a head of ``broker``; then it was heard."""
    try:
        own = decode_head(payload).broker == broker
    except DecodeError:
        return False
    if own:
        world.head(payload)
    return own
