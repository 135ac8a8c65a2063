"""What a hub's broker got, and how much of it nobody there wanted."""

from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket

from federator.protocol.filters import contains, matches
from federator.protocol.forwarding.frames import KEY_BYTES
from federator.protocol.leaves.arrivals import Arrivals

KEYS = {name: bytes([n]) * KEY_BYTES for n, name in enumerate(["a/+", "a/1", "b", "#", "c/#"])}
TOPICS = ["a/1", "a/2", "b", "c/d"]


def publish(topic):
    return PublishPacket(topic, topic.encode() * 3).write()


class Hub:
    """Its wishes, and the counts of what one side brings."""

    def __init__(self):
        self.wishes = set()
        self.asked = 0
        self.arrivals = Arrivals(
            filters_with=lambda key: [name for name, each in KEYS.items() if each == key],
            wants_filter=lambda filter_: filter_ in self.wishes,
            wants_topic=self.wants_topic,
        )

    def wants_topic(self, topic):
        self.asked += 1
        return any(matches(wish, topic) for wish in self.wishes)

    def take(self, filters, topics):
        run = b"".join(map(publish, topics))
        self.arrivals.note(b"".join(KEYS[each] for each in filters), run, len(topics))
        return len(run)


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(sorted(KEYS)), max_size=3),
            st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True),
            st.lists(st.sampled_from(TOPICS), min_size=1, max_size=5),
        ),
        max_size=10,
    )
)
def test_what_nobody_wants_is_counted_and_nothing_else(steps):
    hub, brought, size, in_vain, size_in_vain = Hub(), 0, 0, 0, 0
    for wishes, filters, topics in steps:
        hub.wishes = wishes
        hub.arrivals.forget()
        topics = [each for each in topics if all(matches(f, each) for f in filters)]
        size += hub.take(filters, topics)
        brought += len(topics)
        vain = [each for each in topics if not any(matches(wish, each) for wish in wishes)]
        in_vain += len(vain)
        size_in_vain += sum(len(publish(each)) for each in vain)

    told = hub.arrivals
    counted = (told.publications, told.size, told.in_vain, told.size_in_vain)
    assert counted == (brought, size, in_vain, size_in_vain)


def test_a_frame_for_a_filter_that_somebody_wants_is_not_looked_into():
    hub = Hub()
    hub.wishes = {"a/1"}

    hub.take(["a/+", "a/1"], ["a/1"] * 3)

    assert contains("a/+", "a/1")
    assert hub.asked == hub.arrivals.in_vain == 0


def test_a_topic_is_looked_up_once_until_somebody_wants_otherwise():
    hub = Hub()
    hub.take(["a/+"], ["a/2"] * 5)
    assert (hub.asked, hub.arrivals.in_vain) == (1, 5)

    hub.wishes = {"a/2"}
    hub.arrivals.forget()
    hub.take(["a/+"], ["a/2"] * 5)

    assert (hub.asked, hub.arrivals.in_vain) == (2, 5)
