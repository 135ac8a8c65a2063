"""Which broker a client is attached to."""

from collections import Counter

from federator.gateway.session.attachment import Attachment, Candidate, Claims

CLIENTS = [f"client-{number}" for number in range(2_000)]


def candidates(*ids):
    return [Candidate(id_) for id_ in ids]


def test_assigned_clients_are_spread_evenly_and_every_gateway_chooses_alike():
    def rank(client, *ids):
        return Attachment("assigned").rank(client, candidates(*ids))

    homes = Counter(rank(client, 1, 2, 3, 4)[0] for client in CLIENTS)

    assert all(400 < count < 600 for count in homes.values())
    for client in CLIENTS[:50]:
        assert rank(client, 4, 3, 2, 1) == rank(client, 1, 2, 3, 4)


def test_when_a_broker_goes_only_its_own_clients_move():
    attachment = Attachment("assigned")
    for client in CLIENTS[:300]:
        before = attachment.rank(client, candidates(1, 2, 3, 4))
        after = attachment.rank(client, candidates(1, 2, 4))

        assert after == [id_ for id_ in before if id_ != 3]


def test_assignments_by_pattern_come_first_and_hold_while_their_broker_is_there():
    attachment = Attachment("nearest", [("pump-*", 3), ("*", 2)])

    assert attachment.rank("pump-7", candidates(1, 2, 3))[0] == 3
    assert attachment.rank("other", candidates(1, 2, 3))[0] == 2
    assert attachment.rank("pump-7", candidates(1, 2)) == [1, 2]


def test_nearest_and_least_loaded_compare_what_was_measured():
    known = [Candidate(1, 5, 0.3), Candidate(2, 9, 0.1), Candidate(3, 1)]

    assert Attachment("nearest").rank("c", known) == [2, 1, 3]
    assert Attachment("least-loaded").rank("c", known) == [3, 1, 2]


def test_where_the_session_is_and_who_steps_in_go_before_any_policy():
    ranked = Attachment("nearest").rank("c", candidates(1, 2, 3), preferred=(9, 3, 2))

    assert ranked == [3, 2, 1]


def test_a_claim_is_heard_once_however_many_brokers_carry_it():
    ours, theirs = Claims("ours", 1), Claims("theirs", 1)
    claim = theirs.of("c", 3, came=True, lasts=True)

    assert ours.is_news(claim)
    assert not ours.is_news(claim)
    assert ours.is_news(theirs.of("c", 3, came=True, lasts=True))
    assert not ours.is_news(ours.of("d", 1, came=True, lasts=False))


def test_sessions_that_last_are_remembered_where_they_are_and_others_are_not():
    ours, theirs = Claims("ours", 1), Claims("theirs", 1)
    ours.of("c", 1, came=True, lasts=True)
    ours.is_news(theirs.of("c", 2, came=True, lasts=True))
    ours.of("d", 3, came=True, lasts=True)

    assert (ours.home("c"), ours.home("d"), ours.home("e")) == (2, 3, None)

    ours.of("d", 3, came=True, lasts=False)
    assert ours.home("d") is None
