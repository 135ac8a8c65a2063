"""The clock that orders retained values. docs/protocol.md 13."""

from federator.protocol.retained.versions import CLOCK_LEAP_MAX_US, NEVER, HybridClock, Version


def test_the_clock_never_stands_still_nor_goes_back_with_the_wall_clock():
    clock = HybridClock()

    assert [clock.read(wall_us) for wall_us in (100, 100, 50, 200)] == [100, 101, 102, 200]


def test_who_overwrites_what_he_heard_of_is_newer_whatever_his_wall_clock_says():
    clock = HybridClock()
    heard = Version(1_000, 3, 9)

    assert clock.observe(heard, 100)
    assert Version(clock.read(100), 0, 1) > heard


def test_a_version_more_than_a_day_ahead_is_refused_and_moves_no_clock():
    clock = HybridClock()

    assert not clock.observe(Version(CLOCK_LEAP_MAX_US + 101, 0, 9), 100)
    assert clock.observe(Version(CLOCK_LEAP_MAX_US + 100, 0, 9), 100)
    assert clock.read(100) == CLOCK_LEAP_MAX_US + 101


def test_versions_order_by_time_then_place_then_origin():
    assert NEVER < Version(0, 0, 1) < Version(5, 0, 2) < Version(5, 1, 1) < Version(5, 1, 2)
    assert Version(5, 0, 2) < Version(5, 0, 2).successor(1) < Version(6, 0, 1)
