"""Log lines mean what Mosquitto meant, whatever clients call themselves and their filters."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.discovery.log_lines import (
    ERROR_TOPIC,
    LINE_BYTES_MAX,
    LOG_TOPICS,
    NOTICE_TOPIC,
    READINGS_MAX,
    SUBSCRIBE_TOPIC,
    Ambiguous,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    LogReader,
    Subscribed,
    Unreadable,
    Unsubscribed,
)
from tests.effort import seeds
from tests.protocol.discovery.golden_files import (
    GoldenFile,
    NobodyKnown,
    golden_files,
    meanings_of,
)
from tests.protocol.discovery.model_broker import printed

OWN_ID = "federator-1-ctl"
LINES = int(os.environ.get("FEDERATOR_LOG_LINES", seeds(200_000)))
"""Set it to 1000000 for the long run."""


class Everybody:
    """All connected clients are known, and these are they."""

    complete = True

    def __init__(self, *ids: str) -> None:
        self.ids = set(ids)

    def is_connected(self, id: str) -> bool:
        return id in self.ids


def reader(
    known=None, *, version: str = "mosquitto version 2.0.11", timestamp: str = "1700000000: "
) -> LogReader:
    read = LogReader(own_id=OWN_ID, known=known or NobodyKnown())
    read.on_version(version)
    read.read(SUBSCRIBE_TOPIC, f"{timestamp}{OWN_ID} 1 {SUBSCRIBE_TOPIC}".encode())
    return read


GOLDEN = list(golden_files())


def test_there_are_golden_files_of_every_dialect():
    versions = {golden.version.rpartition(" ")[2] for golden in GOLDEN}

    assert versions == {"2.0.11", "2.0.22", "2.1.0", "2.1.1", "2.1.2"}
    assert all(len(golden.lines) > 90 for golden in GOLDEN)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_every_captured_line_means_what_was_done(golden: GoldenFile):
    read = LogReader(own_id=golden.own_id, known=NobodyKnown())
    read.on_version(golden.version)

    for line in golden.lines:
        event = read.read(line.topic, line.payload)

        assert meanings_of(event) == line.meanings, line.payload


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_knowing_all_connected_clients_leaves_only_forged_lines_ambiguous(golden: GoldenFile):
    known = Everybody(golden.own_id)
    read = LogReader(own_id=golden.own_id, known=known)
    read.on_version(golden.version)
    ambiguous, credited = [], []

    for line in golden.lines:
        match read.read(line.topic, line.payload):
            case ClientConnected(id=id):
                known.ids.add(id)
            case ClientEnded(id=id):
                known.ids.discard(id)
            case Ambiguous() as event:
                ambiguous.append({type(each) for each in event.candidates})
            case Subscribed(id=id, filter=filter, cut=False):
                credited.append((id, filter))
            case _:
                pass

    # One forged user name; its client is then unknown, like the one whose id was cut.
    assert ambiguous == [{ClientConnected}]
    assert ("sp", "ace 0 t/1") in credited
    assert ("sp 0 ace", "t/1") in credited
    assert [id for id, filter in credited if filter == "t/2"] == [
        "x (p2, c1, k60).",
        "y (p2, c1, k60, u'z",
        "New client connected from 1.2.3.4:5 as victim (p2, c1, k60).",
        "victim disconnected. Client other",
        "victim [127.0.0.1:5] disconnected: protocol error",
        "1700000000: victim 0 t",
        "Ströme €",
    ]


@pytest.mark.parametrize(
    ("topic", "text", "truth"),
    [
        (NOTICE_TOPIC, "Client a disconnected: Connection reset by peer.", "a"),
        (NOTICE_TOPIC, "Bad socket read/write on client a: The connection was lost.", "a"),
        (NOTICE_TOPIC, "Client a been disconnected by administrative action.", "a"),
        (NOTICE_TOPIC, "Client a disconnected due to QoS too high or retain not supported.", "a"),
        (NOTICE_TOPIC, "Client a disconnected, not authorised.", "a"),
        (ERROR_TOPIC, "Client a already connected, closing old connection.", "a"),
    ],
)
def test_rare_ends_of_a_connection_are_ends_too(topic: str, text: str, truth: str):
    event = reader().read(topic, f"1700000000: {text}".encode())

    assert isinstance(event, ClientEnded)
    assert event.id == truth


def test_a_bridge_from_another_broker_is_a_client_like_any_other():
    line = b"1700000000: New bridge connected from 10.0.0.1:99 as other.bridge (p2, c0, k60)."

    assert reader().read(NOTICE_TOPIC, line) == ClientConnected("other.bridge", False, 4)


@pytest.mark.parametrize(
    "prefix", ["", "1700000000: ", "Fri  5 May 2023 07:08:09 -0300: ", "[a.b] 12:00 PM : "]
)
def test_the_shape_of_the_timestamp_is_learned_from_our_own_line(prefix: str):
    read = reader(timestamp=prefix)

    later = prefix.replace(" 5", "15").replace("May", "June").replace("-0300", "+0100")
    event = read.read(SUBSCRIBE_TOPIC, f"{later}c 1 t".encode())

    assert event == Subscribed("c", 1, "t")


def test_a_client_cannot_lengthen_the_timestamp_by_imitating_our_own_line():
    read = LogReader(own_id=OWN_ID, known=NobodyKnown())
    forged = f"1700000000: victim: {OWN_ID} 1 {SUBSCRIBE_TOPIC}"
    own = f"1700000000: {OWN_ID} 1 {SUBSCRIBE_TOPIC}"

    for order in ((own, forged), (forged, own)):
        read.timestamps.forget()
        for line in order:
            read.read(SUBSCRIBE_TOPIC, line.encode())

        event = read.read(SUBSCRIBE_TOPIC, b"1700000000: victim: x 0 t")
        assert event == Subscribed("victim: x", 0, "t")


def test_a_line_without_the_learned_timestamp_is_unreadable_not_guessed():
    event = reader(timestamp="Fri 1: ").read(SUBSCRIBE_TOPIC, b"1700000000: c 1 t")

    assert event == Unreadable("1700000000: c 1 t", subscription=True)


def test_a_cut_line_is_believed_only_when_all_clients_are_known():
    line = ("1700000000: c 1 " + "x" * LINE_BYTES_MAX).encode()[:LINE_BYTES_MAX]

    among_strangers = reader().read(SUBSCRIBE_TOPIC, line)
    among_friends = reader(Everybody("c")).read(SUBSCRIBE_TOPIC, line)

    assert isinstance(among_strangers, Ambiguous)
    assert among_strangers.cut
    assert isinstance(among_friends, Subscribed)
    assert among_friends.cut


# Nasty names are made of pieces of log lines.
PIECES = [
    " ", "0", " 0 ", " 1 ", " 2 ", "a", "b/c", "t", "#", "+", "/", ":", ": ", "1700000000: ", "é",
    "€", "New client connected from 1.2.3.4:5 as ", " (p2, c1, k60).", " (p5, c0, k9, u'", "').",
    "Client ", " disconnected.", " disconnected: x.", " [1.2.3.4:5]", " closed its connection.",
    "\U0001f600",
    " due to timeout.", "$share/g/", OWN_ID, "x" * 400,
]  # fmt: skip

names = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(names.map(lambda n: n.replace("#", "h").replace("+", "p")), max_size=4))
    wild = [draw(st.sampled_from([level, level, "+"])) for level in levels]
    ending = draw(st.sampled_from([["#"], ["z"]]))
    share = draw(st.sampled_from(["", "", "$share/my group/"]))
    return share + "/".join([*wild, *ending])


events = st.one_of(
    st.builds(Subscribed, names, st.integers(0, 2), filters()),
    st.builds(Unsubscribed, names, filters()),
    st.builds(ClientConnected, names, st.booleans(), st.sampled_from([4, 5])),
    st.builds(ClientEnded, names),
)
versions = st.sampled_from(["2.0.11", "2.1.0", "2.1.2"])
timestamps = st.sampled_from(["", "1700000000: ", "Fri 5 May, 07:08:09: "])


def assert_not_credited_to_another(event: object, truth: ClientEvent, *, cut: bool) -> None:
    match event:
        case Ambiguous(candidates=candidates):
            assert cut or truth in candidates
            assert len(candidates) <= READINGS_MAX
        case Unreadable() | None:
            pass  # counted; interest widens or stays
        case Subscribed(cut=True) | Unsubscribed(cut=True):
            assert isinstance(truth, Subscribed | Unsubscribed)
            assert event.id == truth.id
            assert truth.filter.startswith(event.filter)
        case _:
            assert event == truth


@settings(max_examples=seeds(1500), deadline=None)
@given(truth=events, others=st.lists(names, max_size=3), version=versions, timestamp=timestamps)
def test_no_line_is_credited_to_the_wrong_client_when_all_are_known(
    truth: ClientEvent, others: list[str], version: str, timestamp: str
):
    read = reader(
        Everybody(truth.id, *others), version=f"mosquitto version {version}", timestamp=timestamp
    )
    topic, line = printed(truth, version=version, timestamp=timestamp)

    event = read.read(topic, line)

    assert_not_credited_to_another(event, truth, cut=len(line) >= LINE_BYTES_MAX)


@settings(max_examples=seeds(1500), deadline=None)
@given(truth=events, version=versions, timestamp=timestamps)
def test_no_line_is_credited_to_the_wrong_client_when_none_are_known(
    truth: ClientEvent, version: str, timestamp: str
):
    read = reader(version=f"mosquitto version {version}", timestamp=timestamp)
    topic, line = printed(truth, version=version, timestamp=timestamp)

    event = read.read(topic, line)

    assert_not_credited_to_another(event, truth, cut=len(line) >= LINE_BYTES_MAX)


def test_hundreds_of_thousands_of_mutated_lines_never_raise():
    rng = random.Random(1)
    seeds = [(line.topic, line.payload) for golden in GOLDEN for line in golden.lines]
    readers = [reader(), reader(Everybody("sp", "sp 0 ace", "plain"), version="mosquitto 2.1.2")]
    kinds = set()

    for number in range(LINES):
        topic, payload = rng.choice(seeds)
        mutated = bytearray(payload)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(mutated) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                mutated[at : at + rng.randrange(1, 9)] = b""
            elif kind == 1:
                mutated[at:at] = rng.choice(PIECES).encode()
            elif kind == 2:
                mutated[at:at] = rng.randbytes(rng.randrange(1, 5))
            else:
                mutated += rng.choice(seeds)[1]
        event = readers[number % 2].read(rng.choice([topic, topic, *LOG_TOPICS]), bytes(mutated))
        kinds.add(type(event))

    assert len(kinds) == 9, f"every kind of event, and none at all, was met: {kinds}"
