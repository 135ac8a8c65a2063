"""What one client can make a gateway remember ends somewhere."""

import pytest

from federator.gateway import wire
from federator.gateway.session.recent_deliveries import Allowance, RecentDeliveries
from federator.gateway.session.subscriptions import Subscriptions
from federator.gateway.wire import V311


def test_a_client_with_filters_as_long_as_they_may_be_meets_a_bound():
    asked = Subscriptions(V311, filters_max=10_000)
    long = [("x" * 60_000 + str(number), 0) for number in range(100)]

    def ask_for_all():
        for packet_id, filter in enumerate(long, 1):
            asked.ask(b"", wire.Subscribe(packet_id, (filter,)))
            asked.on_suback(wire.Answer(packet_id, b"\0"), 0)

    with pytest.raises(wire.MalformedError) as caught:
        ask_for_all()

    assert caught.value.reason == wire.Reason.QUOTA_EXCEEDED
    gone = tuple(asked.granted)
    assert 60 < len(gone) < 75
    asked.ask(b"", wire.Unsubscribe(1, gone))
    asked.on_unsuback(wire.Answer(1, b""))
    asked.ask(b"", wire.Subscribe(2, tuple(long[:60])))


def test_the_memory_for_deliveries_is_shared_and_bounded():
    shared = Allowance(1_000)
    flooded, quiet = RecentDeliveries(5_000, shared), RecentDeliveries(5_000, shared)

    quiet.add(b"q" * 100, 0)
    for number in range(50):
        flooded.add(bytes([number]) * 100, 0)

    assert shared.bytes <= 1_000
    assert list(quiet.since(0)) == [b"q" * 100]
    assert list(flooded.since(0))[-1] == bytes([49]) * 100
    flooded.close()
    assert shared.bytes == 100
    quiet.forget(5_001)
    assert shared.bytes == 0
