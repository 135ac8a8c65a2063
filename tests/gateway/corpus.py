"""Good packets of clients, and what vandals make of them.

Hypothesis draws the packet and a seed; from these each example grows many hostile inputs, so that
a hundred thousand take seconds and a failure still shrinks to its packet.
"""

import random
from collections.abc import Iterator

import hypothesis.strategies as st

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property
from federator.gateway.wire.fields import write_packet

versions = st.sampled_from([V311, V5])
ids = st.integers(1, 0xFFFF)
qualities = st.integers(0, 2)
texts = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "Zs"), exclude_characters="+#/$"),
    max_size=12,
)
names = texts.filter(bool)
topics = st.lists(texts, min_size=1, max_size=4).map("/".join).filter(bool)
binaries = st.binary(max_size=40)
users = st.lists(
    st.tuples(st.just(Property.USER_PROPERTY), st.tuples(texts, texts)), max_size=3
).map(tuple)


@st.composite
def filters(draw):
    levels = draw(st.lists(st.one_of(texts, st.just("+")), min_size=1, max_size=4))
    text = "/".join(levels + ["#"] * draw(st.booleans()))
    share = draw(st.sampled_from(["", "", "$share/g/"]))
    return share + (text or "a")


def properties(**values):
    """Some of the named properties, each with a value of its strategy, and user properties."""
    maybe = [
        st.one_of(st.just(()), value.map(lambda v, key=key: ((Property[key], v),)))
        for key, value in values.items()
    ]
    return st.tuples(*maybe, users).map(lambda parts: sum(parts, ()))


MESSAGE = {
    "PAYLOAD_FORMAT": st.integers(0, 1),
    "MESSAGE_EXPIRY": st.integers(0, 2**32 - 1),
    "CONTENT_TYPE": texts,
    "RESPONSE_TOPIC": topics,
    "CORRELATION_DATA": binaries,
}


@st.composite
def wills(draw, version):
    return wire.Will(
        draw(topics),
        draw(binaries),
        draw(qualities),
        draw(st.booleans()),
        draw(properties(WILL_DELAY=st.integers(0, 99), **MESSAGE)) if version == V5 else (),
    )


@st.composite
def connects(draw, version):
    given = properties(
        SESSION_EXPIRY=st.integers(0, 2**32 - 1),
        RECEIVE_MAXIMUM=ids,
        MAXIMUM_PACKET_SIZE=st.integers(1, 2**32 - 1),
        TOPIC_ALIAS_MAXIMUM=st.integers(0, 9),
        REQUEST_PROBLEM_INFORMATION=st.integers(0, 1),
        REQUEST_RESPONSE_INFORMATION=st.integers(0, 1),
    )
    return wire.Connect(
        version,
        draw(names),
        draw(st.booleans()),
        draw(st.integers(0, 0xFFFF)),
        draw(st.one_of(st.none(), wills(version))),
        username := draw(st.one_of(st.none(), texts)),
        draw(st.one_of(st.none(), binaries)) if username is not None else None,
        draw(given) if version == V5 else (),
    )


@st.composite
def publishes(draw, version):
    qos = draw(qualities)
    return wire.write_publish(
        draw(topics),
        draw(binaries),
        version=version,
        qos=qos,
        retain=draw(st.booleans()),
        packet_id=draw(ids),
        properties=draw(properties(**MESSAGE)) if version == V5 else (),
    )


@st.composite
def subscribes(draw, version):
    wanted = []
    for filter in draw(st.lists(filters(), min_size=1, max_size=3)):
        options = draw(qualities) | draw(st.sampled_from([0, 0x08, 0x10, 0x24]))
        if filter.startswith("$share"):
            options &= ~wire.NO_LOCAL
        wanted.append((filter, options & (0x3F if version == V5 else 3)))
    given = properties(SUBSCRIPTION_ID=st.integers(1, 2**28 - 1))
    return wire.write_request(
        wire.Subscribe(draw(ids), tuple(wanted), draw(given) if version == V5 else ()), version
    )


@st.composite
def unsubscribes(draw, version):
    wanted = tuple(draw(st.lists(filters(), min_size=1, max_size=3)))
    return wire.write_request(
        wire.Unsubscribe(draw(ids), wanted, draw(users) if version == V5 else ()), version
    )


def acknowledgements(version):
    kinds = st.sampled_from([Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
    return st.builds(wire.write_ack, kinds, ids, st.just(version))


def client_packets(version):
    """One good packet of a client, CONNECT included."""
    return st.one_of(
        connects(version).map(wire.write_connect),
        publishes(version),
        subscribes(version),
        unsubscribes(version),
        acknowledgements(version),
        st.just(wire.PINGREQ),
        st.sampled_from([0, 4] if version == V5 else [0]).map(
            lambda reason: wire.write_disconnect(reason, version)
        ),
    )


INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFF, 0x23, 0x2B, 0xC0, 0xED)
"""Edges of lengths and identifiers, wildcards, and beginnings of bad UTF-8."""


def vandalized(packet: bytes, seed: int, count: int) -> Iterator[bytes]:
    """``count`` hostile variants of ``packet``."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(packet)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _vandalize(data, rng)
        yield bytes(data)


def reframed(packet: bytes) -> bytes:
    """The same with a remaining length that fits, so that what is wrong lies deeper."""
    if len(packet) < 2:
        return packet
    body = 2
    while body < min(len(packet), 5) and packet[body - 1] >= 0x80:
        body += 1
    return write_packet(packet[0], packet[body:])


def _vandalize(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(7):
        case 0:
            del data[at:]
        case 1 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 2 if at < len(data):
            data[at] = rng.choice(INTERESTING)
        case 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 6))
        case 4:
            del data[at : at + rng.randrange(1, 6)]
        case 5:
            data[at:at] = data[at : at + rng.randrange(1, 12)]
        case 6 if len(data) > 1:
            data[1] = rng.randrange(256)
    if not data:
        data += b"\0"
