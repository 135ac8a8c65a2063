from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import matches
from tests.protocol.filters.small_world import FILTERS, TOPICS, matches_stupidly

levels = st.sampled_from(["", "a", "b", "$x", "é", " "])
topics = st.lists(levels, min_size=1, max_size=7).map("/".join).filter(bool)
any_filters = (
    st.tuples(st.lists(st.one_of(levels, st.just("+")), max_size=7), st.sampled_from([[], ["#"]]))
    .map(lambda parts: "/".join(parts[0] + parts[1]))
    .filter(bool)
)


def test_matching_agrees_with_the_stupid_matcher_in_the_small_world():
    wrong = [
        (filter, topic)
        for filter in FILTERS
        for topic in TOPICS
        if matches(filter, topic) != matches_stupidly(filter, topic)
    ]

    assert not wrong


@given(any_filters, topics)
def test_matching_agrees_with_the_stupid_matcher(filter, topic):
    assert matches(filter, topic) == matches_stupidly(filter, topic)
