"""Who serves a group: counted by hand, and against a stupid model of brokers that deal out."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.filters import matches
from federator.protocol.messages.group_records import MemberRecord
from federator.protocol.sharing.assignment import Assignment
from federator.protocol.sharing.membership import Membership, Orphans

JOBS = ("g", "jobs/#")
TOPICS = ["a", "a/b", "b", "c"]
FILTERS = ["a", "a/#", "+", "+/b", "#", "b"]


def membership(*records):
    made = Membership()
    for broker, members, (group, filter), *crossed in records:
        made.add(MemberRecord(broker, members, bool(crossed), group, filter))
        made.reach(broker)
    return made


def assignment(here, known, **options):
    made = Assignment(here, stand_ins_max=options.pop("stand_ins_max", 8))
    made.update(known, **options)
    return made


def test_an_orphan_is_wanted_for_its_time_and_until_members_are_found():
    orphans = Orphans(keep_ms=1_000, orphans_max=2)
    orphans.lose(JOBS, now_ms=0)
    orphans.lose(("h", "a"), now_ms=500)
    orphans.lose(JOBS, now_ms=600)

    assert orphans.next_deadline_ms() == 1_500
    assert not orphans.expire(now_ms=1_499)
    assert orphans.expire(now_ms=1_500)
    assert orphans.groups == {JOBS}
    orphans.find([JOBS])
    assert orphans.next_deadline_ms() is None
    for n in range(3):
        orphans.lose(("g", str(n)), now_ms=0)
    assert orphans.groups == {("g", "1"), ("g", "2")}


# Against a stupid model: what is published at a broker reaches one member of each group there.

records = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.integers(1, 3),
        st.tuples(st.sampled_from("gh"), st.sampled_from(FILTERS)),
    ),
    max_size=8,
)


def served(known, at, topic):
    """The groups that get ``topic`` when it is published at the broker ``at``."""
    return [k for k in known.groups if matches(k[1], topic) and at in known.brokers(k)]


def deliveries(known, here, topic):
    """How often each group is served with what a client publishes at ``here``."""
    mine = assignment(here, known)
    count = Counter()
    publish_at = [pick.next() for pick in mine.share(topic).picks]
    stood_in = [k for k in served(known, here, topic) if mine.stand_ins.get(k)]
    if stood_in:  # each turn is right: a member here, or somebody elsewhere
        publish_at.append(mine.taken(topic).next())
    for at in publish_at:
        count.update(served(known, at, topic))
    count.update(k for k in served(known, here, topic) if k not in stood_in)
    return count


def test_of_groups_that_share_some_of_their_brokers_only_one_may_get_too_much_and_it_is_told():
    g, h = ("g", "a"), ("h", "a")
    known = membership((1, 1, g), (1, 1, h), (2, 1, h))

    assert deliveries(known, 2, "a") == {g: 1, h: 2}
    assert "$share/g/a" in known.why_inexact(h)
    assert known.why_inexact(("elsewhere", "a")) is None


@settings(max_examples=500)
@given(records, st.integers(1, 6), st.sampled_from(TOPICS))
def test_every_group_is_served_and_once_when_nothing_is_said_against_it(records, here, topic):
    known = membership(*records)
    concerned = [key for key in known.groups if matches(key[1], topic)]

    count = deliveries(known, here, topic)

    assert set(count) == set(concerned)
    for key in concerned:
        assert count[key] == 1 or known.why_inexact(key) is not None


@given(records, records)
def test_groups_that_went_leave_no_trace(stay, go):
    known = membership(*stay, *go)
    for broker, members, (group, filter) in go:
        if (broker, members, (group, filter)) not in stay:
            known.discard(MemberRecord(broker, members, False, group, filter))
    fresh = membership(*stay)

    assert known.groups == fresh.groups
    for key in fresh.groups:
        assert known.brokers(key) == fresh.brokers(key)
        assert known.is_alone(key) == fresh.is_alone(key)
        assert known.why_inexact(key) == fresh.why_inexact(key)


@given(records, st.integers(1, 6), st.sampled_from(TOPICS), st.integers(1, 4))
def test_a_broker_never_sends_a_publication_to_itself_nor_to_one_without_members(
    records, here, topic, turns
):
    known = membership(*records)

    picks = assignment(here, known).share(topic).picks

    for pick in picks:
        for _ in range(turns):
            broker = pick.next()
            assert broker != here
            assert served(known, broker, topic)
            assert all(broker in known.brokers(key) for key in pick.serves)


@given(records, st.integers(1, 6))
def test_a_stand_in_never_stands_where_somebody_else_would_get_what_is_published_again(
    records, here
):
    known = membership(*records)

    for key in assignment(here, known).stand_ins:
        for topic in TOPICS:
            if matches(key[1], topic):
                assert served(known, here, topic) == [key]


def record(broker, number, members=1):
    return MemberRecord(broker, members, False, f"g{number}", "a/#")


def test_what_a_broker_announces_beyond_its_share_waits_for_room_and_ours_never_does(monkeypatch):
    monkeypatch.setattr("federator.protocol.sharing.membership.RECORDS_MAX", 5)
    monkeypatch.setattr("federator.protocol.sharing.membership.BROKER_RECORDS_MAX", 3)
    known = Membership(1)
    for broker in (1, 2, 3, 4):
        known.reach(broker)
        for number in range(4):
            known.add(record(broker, number))
            known.add(record(broker, number))

    assert [sorted(known.brokers((f"g{n}", "a/#"))) for n in range(4)] == [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2],
        [1],
    ]
    assert known.waiting == 7

    known.discard(record(2, 3))  # it waited
    known.discard(record(2, 0))
    known.discard(record(3, 0))

    assert known.waiting == 4
    assert sorted(known.brokers(("g2", "a/#"))) == [1, 2, 3]
    for broker in (1, 2, 3, 4):
        for number in range(4):
            known.discard(record(broker, number))
    assert (len(known), known.waiting) == (0, 0)


def test_a_broker_that_changes_its_number_for_ever_is_heard_so_often_and_no_more(monkeypatch):
    monkeypatch.setattr("federator.protocol.sharing.membership.BROKER_RECORDS_MAX", 3)
    known = Membership(1)
    known.reach(2)
    for members in range(1, 100):
        known.add(record(2, 0, members))

    assert known.brokers(("g0", "a/#"))[2].count == 3
    assert known.waiting == 96
