"""Large changes wait, small ones pass them, and lists take turns. docs/protocol.md 5."""

from federator.protocol.routing.backlog import BUSY_FILTERS, SLICE_GAP_MS, Backlog
from federator.protocol.routing.filter_lists import SMALL_CHANGE_MAX
from federator.protocol.signals import AnnouncedFiltersChanged, ChildFiltersChanged

FEW = frozenset(f"few/{n}" for n in range(SMALL_CHANGE_MAX))
MANY = frozenset(f"many/{n}" for n in range(3 * SMALL_CHANGE_MAX + 1))


def slices(backlog):
    found = []
    while backlog.due_ms is not None:
        found.append(backlog.next_slice(now_ms=backlog.due_ms))
    return found


def test_a_small_change_is_for_now():
    backlog = Backlog()

    assert not backlog.postpones(AnnouncedFiltersChanged(1, FEW), now_ms=0)
    assert backlog.due_ms is None


def test_a_large_change_comes_in_slices_and_whole():
    backlog = Backlog()

    assert backlog.postpones(AnnouncedFiltersChanged(1, MANY, gave_up=True), now_ms=0)
    found = slices(backlog)

    assert [len(each.filters) for each in found[:-1]] == [SMALL_CHANGE_MAX] * 3
    assert frozenset().union(*(each.filters for each in found)) == MANY
    assert {(each.core, each.gave_up) for each in found} == {(1, True)}


def test_there_is_a_pause_between_slices():
    backlog = Backlog()
    backlog.postpones(AnnouncedFiltersChanged(1, MANY), now_ms=0)

    backlog.next_slice(now_ms=7)

    assert backlog.due_ms == 7 + SLICE_GAP_MS
    assert backlog.next_slice(now_ms=8) is None


def test_lists_take_turns():
    backlog = Backlog()
    backlog.postpones(AnnouncedFiltersChanged(1, MANY), now_ms=0)
    backlog.postpones(ChildFiltersChanged(1, 9, MANY), now_ms=0)

    first, second = slices(backlog)[:2]

    assert {type(first), type(second)} == {AnnouncedFiltersChanged, ChildFiltersChanged}


def test_a_list_is_busy_while_very_much_of_it_waits():
    backlog = Backlog()
    many = frozenset(f"many/{n}" for n in range(BUSY_FILTERS))

    backlog.postpones(ChildFiltersChanged(1, 9, many), now_ms=0)
    assert not backlog.is_busy(ChildFiltersChanged(1, 9))
    backlog.postpones(ChildFiltersChanged(1, 9, MANY), now_ms=0)

    assert backlog.is_busy(ChildFiltersChanged(1, 9))
    assert not backlog.is_busy(ChildFiltersChanged(1, 8))
    slices(backlog)
    assert not backlog.is_busy(ChildFiltersChanged(1, 9))
