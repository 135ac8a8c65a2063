"""What a console lists as having happened."""

from federator.console.events import EVENTS_MAX, FILTER_SHOWN, ROUTINE_MAX, EventList
from federator.protocol.telemetry.records import Events


def broker(state, id=3, why=""):
    return {"id": id, "state": state, "why": why}


def told(events):
    return [(each["weight"], each["text"], each["brokers"]) for each in events.since(0)]


def record(kind, **more):
    fields = {"federation": "f", "broker": 1, "epoch": 1, "spool": "a" * 16, "batch": 1, "row": 0}
    return Events(**fields, at_us=5_000_000, kind=kind, **more)


def test_a_death_is_told_with_its_weight_and_a_return_too():
    events = EventList()
    for state in ("ready", "unreached", "down", "ready"):
        events.look("b3", broker(state), at_ms=1)

    assert told(events) == [
        ("bad", "{} cannot be reached from here; its neighbours reach it", [3]),
        ("death", "{} is down", [3]),
        ("good", "{} is ready", [3]),
    ]


def test_what_does_not_change_its_state_is_no_event():
    events = EventList()
    events.look("b3", broker("ready") | {"clients": 1}, at_ms=1)
    events.look("b3", broker("ready") | {"clients": 2}, at_ms=2)

    assert told(events) == []


def test_links_tell_of_both_ends():
    events = EventList()
    for up in (True, False, True):
        events.look("l1-2", {"a": 1, "b": 2, "up": up}, at_ms=1)

    assert told(events) == [
        ("bad", "the link of {} and {} is down", [1, 2]),
        ("good", "the link of {} and {} is up", [1, 2]),
    ]


def test_braces_of_others_are_no_places_for_names():
    events = EventList()
    events.on_record(record("parent_changed", filter="{}/{}", neighbour=2), 1)
    events.look("b3", broker("ready"), at_ms=1)
    events.look("b3", broker("not_ready", why="{} waits"), at_ms=1)

    assert [each["text"].count("{}") == len(each["brokers"]) for each in events.since(0)] == [
        True, True,
    ]  # fmt: skip


def test_however_much_routine_there_is_a_death_stays():
    events = EventList()
    events.look("b3", broker("down"), at_ms=1)
    for _ in range(2 * ROUTINE_MAX):
        events.on_record(record("mesh_joined", filter="a"), 1)

    found = events.since(0)
    assert found[0]["weight"] == "death"
    assert len(found) == ROUTINE_MAX + 1


def test_the_list_is_bounded_and_a_reader_gets_what_is_new():
    events = EventList()
    for number in range(EVENTS_MAX + 10):
        events.look("b3", broker("down" if number % 2 else "ready"), at_ms=number)

    assert len(events.since(0)) <= EVENTS_MAX
    assert events.since(events.number) == []
    assert len(events.since(events.number - 3)) == 3


def test_streams_tell_only_what_we_cannot_see_ourselves():
    events = EventList()
    events.on_record(record("link_down", neighbour=2), 1)

    assert told(events) == []


def test_an_event_about_a_filter_names_as_much_of_it_as_is_shown():
    events = EventList()
    events.on_record(record("mesh_joined", filter="a" * 70_000), 1)
    events.add("plain", "{} serves no more", [1], at_ms=1)

    (about, other) = events.since(0)
    assert about["filter"] == "a" * FILTER_SHOWN
    assert "filter" not in other
