"""What a console makes of answers, silence and broken connections, and what it lists as events."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.console.events import EVENTS_MAX, FILTER_SHOWN, ROUTINE_MAX, EventList
from federator.console.picture import BROKERS_MAX, SILENT_AFTER_MS, Picture, read_live
from federator.errors import DecodeError
from federator.protocol.messages.guide import Guide, GuideBroker, Takeover
from federator.protocol.telemetry.agent_status import LinkStatus, LivePage
from federator.protocol.telemetry.records import Events
from tests.transcripts import play, scenes


def page(*links, epoch=1, ready=True, ready_reason="why", **more):
    listed = tuple(
        LinkStatus(neighbour=n, state="up" if up else "down", rtt_ms=3) for n, up in links
    )
    return LivePage(ready=bool(ready), ready_reason=ready_reason, epoch=epoch, links=listed, **more)


def record(kind, **more):
    fields = {"federation": "f", "broker": 1, "epoch": 1, "spool": "a" * 16, "batch": 1, "row": 0}
    return Events(**fields, at_us=5_000_000, kind=kind, **more)


class Stage:
    """A picture, and its list of events.

    ``connect BROKER``, ``gone BROKER`` and ``doubt BROKER`` are of our connections and of what
    brokers say; ``live BROKER NEIGHBOUR:up ... KEY=VALUE ...`` is an agent's answer; ``guide EPOCH
    NUMBER BROKER:STATE ... SUBSTITUTE>BROKER ...`` is a guide; ``record KIND KEY=VALUE ...`` is of
    the stream of broker 1; ``at MS`` is the time from now on. ``overdue`` prints brokers whose
    state is outdated, and updates them. ``show KEY ...`` prints all records, with these of their
    values; ``changed KEY ...`` those that changed since. ``events`` prints new events.
    """

    def __init__(self):
        self.picture, self.events = Picture(), EventList()
        self.now_ms = self.number = 0
        self.seen = 0, 0

    def do(self, command, *words):
        yield from self._do(command, *words) or ()
        for before, record in self.picture.changes():
            self.events.look(before, record, at_ms=self.now_ms)

    def _do(self, command, *words):
        picture, now = self.picture, {"now_ms": self.now_ms}
        match command, words:
            case "connect", [broker]:
                picture.on_connected(int(broker), f"mqtt://{broker}", **now)
            case "gone", [broker]:
                picture.on_gone(int(broker), **now)
            case "doubt", [broker]:
                picture.on_doubt(int(broker), **now)
            case "live", [broker, *more]:
                links = [word.split(":") for word in more if ":" in word]
                answer = page(*((int(n), state == "up") for n, state in links), **_named(more))
                picture.on_live(int(broker), answer, at_us=1_000 * self.now_ms, **now)
            case "guide", [epoch, number, *more]:
                listed = (word.split(":") for word in more if ":" in word)
                brokers = tuple(GuideBroker(int(id), state=state) for id, state in listed)
                pairs = (word.split(">") for word in more if ">" in word)
                taken = tuple(Takeover(int(b), int(a), 5, 2) for a, b in pairs)
                guide = {"epoch": int(epoch), "number": int(number)}
                picture.on_guide(
                    Guide(1, "fed", 1, 1, **guide, brokers=brokers, takeovers=taken), **now
                )
            case "record", [kind, *more]:
                self.events.on_record(record(kind, **_named(more)), 1)
            case "at", [now_ms]:
                self.now_ms = int(now_ms)
            case "overdue", []:
                late = picture.overdue(**now)
                yield f"{late}"
                for broker in late:
                    picture.look(broker, **now)
            case (("show" | "changed"), keys):
                if command == "show":
                    self.seen = 0, 0
                yield from self._changes(keys)
            case "events", []:
                for event in self.events.since(self.number):
                    yield f"{event['weight']}: {event['text'].format(*event['brokers'])}"
                self.number = self.events.number
            case "counts", []:
                yield f"{picture.counts()}, {picture.age_ms(self.now_ms)} ms old"

    def _changes(self, keys):
        changes = self.picture.since(*self.seen)
        self.seen = changes["version"], changes["generation"]
        if changes["whole"]:
            yield "all"
        for broker in changes["brokers"]:
            why = f" ({broker['why']})" if broker["why"] else ""
            yield " ".join([f"{broker['id']} {broker['state']}{why}", *_values(broker, keys)])
        for link in changes["links"]:
            up = "up" if link["up"] else f"down ({link['why']})"
            yield " ".join([f"{link['a']}-{link['b']} {up}", *_values(link, keys)])
        for takeover in changes["takeovers"]:
            yield f"{takeover['substitute']} for {takeover['broker']}"


def _named(words):
    """The values of ``KEY=VALUE``."""
    pairs = (word.split("=") for word in words if "=" in word)
    return {key: int(value) if value.isdecimal() else value for key, value in pairs}


def _values(record, keys):
    return [f"{key}={record[key]}" for key in keys if key in record]


@scenes(Path(__file__).with_name("picture.txt"))
def test_a_picture_and_its_events(path, number):
    play(path, number, Stage())


def test_who_invents_brokers_does_not_fill_us():
    picture = Picture()
    for broker in range(BROKERS_MAX + 5):
        picture.on_connected(broker, "mqtt://x", now_ms=0)

    assert len(list(picture.brokers())) == BROKERS_MAX
    assert picture.left_out == 5


def test_whom_we_reach_has_room_before_those_that_a_liar_made_up():
    picture = Picture()
    picture.on_connected(1, "mqtt://liar", now_ms=0)
    picture.on_live(1, page(*((n, True) for n in range(10_000, 14_000))), at_us=1, now_ms=0)
    assert len(list(picture.brokers())) == BROKERS_MAX
    seen = picture.since(0, 0)

    for broker in range(2, 12):
        picture.on_connected(broker, "mqtt://honest", now_ms=0)
        picture.on_live(broker, page((1, True)), at_us=1, now_ms=0)

    assert [picture.state(broker) for broker in range(2, 12)] == ["ready"] * 10
    assert len(list(picture.brokers())) == BROKERS_MAX
    changes = picture.since(seen["version"], seen["generation"])
    shown = {each["id"] for each in changes["brokers"]}
    assert changes["whole"]
    assert {end for each in changes["links"] for end in (each["a"], each["b"])} <= shown


def test_however_much_routine_there_is_a_death_stays():
    events = EventList()
    events.look(None, {"id": 3, "state": "down", "why": ""}, at_ms=1)
    for _ in range(2 * ROUTINE_MAX):
        events.on_record(record("mesh_joined", filter="a"), 1)

    found = events.since(0)
    assert found[0]["weight"] == "death"
    assert len(found) == ROUTINE_MAX + 1


def test_the_list_of_events_is_bounded_and_a_reader_gets_what_is_new():
    events = EventList()
    for number in range(EVENTS_MAX + 10):
        events.add("bad", "{} is not ready", [3], at_ms=number)

    assert len(events.since(0)) == EVENTS_MAX
    assert events.since(events.number) == []
    assert len(events.since(events.number - 3)) == 3


def test_an_event_about_a_filter_names_as_much_of_it_as_is_shown():
    events = EventList()
    events.on_record(record("mesh_joined", filter="a" * 70_000), 1)
    events.add("plain", "{} serves no more", [1], at_ms=1)

    (about, other) = events.since(0)
    assert about["filter"] == "a" * FILTER_SHOWN
    assert "filter" not in other


WHOLE = {"ready": True, "ready_reason": "ready", "epoch": 1}
FULL = {"neighbour": 1, "state": "up", "load": 1e300}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ready": 1},
        WHOLE | {"ready_reason": "x" * 2_000},
        WHOLE | {"published": 10**400},
        WHOLE | {"clients": -1},
        WHOLE | {"epoch": 2**60},
        WHOLE | {"links": [FULL]},
    ],
)
def test_what_is_no_page_is_malformed(body):
    with pytest.raises(DecodeError, match="page live"):
        read_live(body)


BROKER = st.integers(0, 4)
STEP = st.one_of(
    st.tuples(st.just("up"), BROKER, st.just(())),
    st.tuples(st.just("gone"), BROKER, st.just(())),
    st.tuples(st.just("live"), BROKER, st.lists(st.tuples(BROKER, st.booleans()), max_size=4)),
    st.tuples(st.just("wait"), BROKER, st.just(())),
)


@given(st.lists(STEP, max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_a_reader_however_slow_ends_with_what_one_sees_who_is_shown_everything(steps, reads):
    picture, now_ms, seen, brokers, links = Picture(), 0, (0, 0), {}, {}
    for number, (what, broker, told) in enumerate([*steps, ("read", 0, ())]):
        match what:
            case "up":
                picture.on_connected(broker, "mqtt://x", now_ms=now_ms)
            case "gone":
                picture.on_gone(broker, now_ms=now_ms)
            case "live":
                picture.on_live(broker, page(*told), at_us=number, now_ms=now_ms)
            case "wait":
                now_ms += SILENT_AFTER_MS
        for late in picture.overdue(now_ms=now_ms):
            picture.look(late, now_ms=now_ms)
        if number in reads or what == "read":
            changes = picture.since(*seen)
            if changes["whole"]:
                brokers, links = {}, {}
            brokers |= {each["id"]: each for each in changes["brokers"]}
            links |= {(each["a"], each["b"]): each for each in changes["links"]}
            seen = changes["version"], changes["generation"]

    everything = picture.since(0, 0)
    assert brokers == {each["id"]: each for each in everything["brokers"]}
    assert links == {(each["a"], each["b"]): each for each in everything["links"]}
