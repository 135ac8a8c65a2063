"""Requests reach everyone once, and letters find back. docs/protocol.md 13."""

import random

import pytest

from federator.protocol.messages.control import PATH_MAX, RetainedNews, RetainedRequest
from federator.protocol.retained.post import (
    FLOODED_PER_S,
    SEEN_MAX,
    RetainedPost,
    way_back,
    way_to_sender,
)

BODY = RetainedNews("#", ())


def request(*path, number=1):
    return RetainedRequest(path[-1], 1, number, path, rally=False, wants=())


def graph(rng, nodes):
    """A random connected graph."""
    neighbours = {node: set() for node in range(nodes)}
    for node in range(1, nodes):
        others = [rng.randrange(node), rng.randrange(nodes)]
        for other in others:
            if other != node:
                neighbours[node].add(other)
                neighbours[other].add(node)
    return neighbours


@pytest.mark.parametrize("seed", range(20))
def test_a_request_reaches_everyone_once_and_each_answer_comes_back(seed):
    rng = random.Random(seed)
    neighbours = graph(rng, 12)
    posts = {node: RetainedPost(node) for node in neighbours}
    under_way = [(hop, request(0)) for hop in sorted(neighbours[0])]
    taken = {}

    while under_way:
        here, came = under_way.pop(rng.randrange(len(under_way)))
        new, onward, hops = posts[here].on_request(came, neighbours[here], now_ms=0)
        if new:
            assert here not in taken
            taken[here] = came
            under_way += [(hop, onward) for hop in hops]

    assert set(taken) == set(neighbours) - {0}
    for here, came in taken.items():
        letter = posts[here].write(BODY, way_back(came, here))
        at = letter.route[1]
        while (onward := posts[at].on_letter(letter)) != (True, None):
            letter = onward[1]
            at = letter.route[letter.at + 1]
        assert at == 0
        assert way_to_sender(letter)[-1] == here


def test_a_request_that_went_too_far_is_answered_and_not_passed_on():
    post = RetainedPost(PATH_MAX)

    new, onward, hops = post.on_request(request(*range(PATH_MAX - 1)), [500], now_ms=0)

    assert (new, onward, hops) == (True, None, [])


@pytest.mark.parametrize("path", [(1, 2, 3), (1, 9, 2)])
def test_a_request_that_names_us_or_another_sender_is_dropped(path):
    post = RetainedPost(9 if 9 in path else 4)
    came = request(*path) if 9 in path else RetainedRequest(5, 1, 1, path, rally=False, wants=())

    assert post.on_request(came, [7], now_ms=0) == (False, None, [])


def test_a_flood_of_requests_is_passed_on_at_a_bounded_rate():
    post = RetainedPost(9)

    def passed(numbers, now_ms):
        taken = [post.on_request(request(1, number=n), [2], now_ms=now_ms) for n in numbers]
        return sum(onward is not None for _, onward, _ in taken)

    assert passed(range(FLOODED_PER_S + 50), 0) == FLOODED_PER_S
    assert post.withheld == 50
    assert passed(range(1_000, 1_050), 10_000 // FLOODED_PER_S) == 10


def test_requests_remembered_are_bounded():
    post = RetainedPost(9)
    for number in range(SEEN_MAX + 1):
        post.on_request(request(1, number=number), [], now_ms=0)

    assert not post.on_request(request(1, number=1), [], now_ms=0)[0]
    assert post.on_request(request(1, number=0), [], now_ms=0)[0]


def test_a_letter_that_goes_astray_is_dropped():
    letter = RetainedPost(1).write(BODY, (1, 2, 3))

    outsider = RetainedPost(5)
    assert outsider.on_letter(letter) == (False, None)
    assert outsider.lost == 1
