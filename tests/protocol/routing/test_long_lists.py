"""Whole lists travel bit by bit, and are taken when there is time for them. docs/protocol.md 5."""

from federator.protocol.events import Received
from federator.protocol.filters import DigestedSet
from federator.protocol.filters.digests import digest_of
from federator.protocol.messages.control import (
    FILTER_LIST_BYTES_MAX,
    FILTERS_PER_MESSAGE_MAX,
    FilterListPage,
    FilterListRequest,
    ListKind,
)
from federator.protocol.routing.filter_lists import (
    PAGE_GAP_MS,
    SMALL_CHANGE_MAX,
    ListSender,
    RemoteList,
    pages_of,
)
from tests.protocol.network import Network

FEW = [f"few/{n}" for n in range(3)]
MANY = [f"many/{n:06}" for n in range(3 * FILTERS_PER_MESSAGE_MAX)]
ONE, OTHER, CORE = 1, 2, 9


def pages(filters, kind=ListKind.CORE):
    blank = FilterListPage(ONE, kind, CORE, 1, digest_of(filters), page=0, pages=0, filters=())
    return list(pages_of(filters, blank))


def test_pages_hold_the_whole_list_within_the_bounds_of_a_message():
    long = [f"{'x' * 2_000}/{n}" for n in range(100)]

    for filters in (MANY, long, FEW, []):
        found = pages(filters)

        assert sorted(f for page in found for f in page.filters) == sorted(filters)
        assert [page.page for page in found] == list(range(found[0].pages))
        for page in found:
            assert len(page.filters) <= FILTERS_PER_MESSAGE_MAX
            assert sum(map(len, page.filters)) <= FILTER_LIST_BYTES_MAX


def linked():
    network = Network([(ONE, OTHER)])
    network.run(2_000)
    return ListSender(network.nodes[ONE].links, ListKind.CORE)


def sent(steps):
    return [step.message for step in steps]


def test_a_short_list_is_sent_at_once():
    sender = linked()

    [page] = sent(sender.send(OTHER, CORE, DigestedSet(FEW), epoch=1, now_ms=0))

    assert list(page.filters) == FEW
    assert sender.due_ms is None


def test_a_long_list_is_sent_page_by_page_and_not_begun_again_while_it_is():
    sender = linked()
    many = DigestedSet(MANY)

    found = sent(sender.send(OTHER, CORE, many, epoch=1, now_ms=0))
    assert sender.send(OTHER, CORE, many, epoch=1, now_ms=0) == []
    while (due_ms := sender.due_ms) is not None:
        assert sender.on_deadline(now_ms=due_ms - 1) == []
        [page] = sent(sender.on_deadline(now_ms=due_ms))
        assert sender.due_ms in (None, due_ms + PAGE_GAP_MS)
        found.append(page)

    assert {f for page in found for f in page.filters} == set(MANY)
    assert sender.send(OTHER, CORE, many, epoch=1, now_ms=0) == []
    assert sender.due_ms is not None  # asked anew, it is sent anew


def asked(digest):
    list_ = RemoteList()
    list_.offer((), (), digest=digest)
    assert list_.may_ask(now_ms=0, gap_ms=250)
    return list_


def test_while_a_large_change_is_looked_at_no_other_is_taken():
    list_ = asked(digest_of(MANY))

    for page in pages(MANY):
        assert not list_.on_page(page, busy=True)
    assert not list_.offer(MANY[: SMALL_CHANGE_MAX + 1], (), digest=1, busy=True)
    assert not list_.may_ask(busy=True, now_ms=1_000, gap_ms=250)
    assert list_.offer(MANY[:SMALL_CHANGE_MAX], (), digest=1, busy=True)


def test_a_list_whose_pages_come_is_not_asked_for_again():
    list_ = asked(digest_of(MANY))
    first, second, *_ = pages(MANY)

    list_.on_page(first)
    assert not list_.may_ask(now_ms=250, gap_ms=250)
    list_.on_page(second)
    assert not list_.may_ask(now_ms=500, gap_ms=250)
    assert list_.may_ask(now_ms=750, gap_ms=250), "nothing came since"


def test_a_request_for_a_long_list_takes_no_turn_for_all_of_it():
    network = Network([(ONE, OTHER)])
    network.run(2_000)
    network.subscribe(ONE, *MANY)
    network.run(0)
    before = len(network.sent)

    node = network.nodes[ONE]
    question = Received(FilterListRequest(OTHER, ListKind.CORE, ONE))
    orders = node.handle(question, now_ms=network.now_ms)
    assert len(orders) <= 1
    network.run(10_000)

    handed_out = [m for *_, m in network.sent[before:] if isinstance(m, FilterListPage)]
    assert len(handed_out) >= 3
    assert len(network.nodes[OTHER].announcements.routes[ONE].announced.filters) == len(MANY)
