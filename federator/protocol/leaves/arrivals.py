"""What one side brought to a hub's broker, and how much of it no client there wanted.

A bounded cover asks for more than is wanted; what comes for the surplus is carried in vain. Most
frames name a filter that is wanted exactly, and then everything in them is wanted, so checking
their keys is enough. For other frames each topic is looked up. Both answers are cached until an
interest changes.

Source: docs/hubs.md, "In vain".
"""

from collections.abc import Callable, Iterable
from typing import Final

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.forwarding.frames import keys_in
from federator.protocol.forwarding.publications import topics_of

ANSWERS_MAX: Final = 16_384


class Arrivals:
    """Counts what comes from one side. Publications that are delivered again count again.

    Args:
        filters_with: The filters with a key in frames of that side.
        wants_filter: Whether another side wants exactly this filter.
        wants_topic: Whether another side wants what is published on this topic.
        on_unwanted: Called with a topic that is not wanted, once while that is cached.
        answers_max: Limit for cached topics, and for cached keys of frames.

    Attributes:
        publications: Published on the hub's broker, and
        size: the bytes of their packets; of these
        in_vain, size_in_vain: wanted by no other side.
    """

    def __init__(
        self,
        *,
        filters_with: Callable[[bytes], Iterable[str]],
        wants_filter: Callable[[str], bool],
        wants_topic: Callable[[str], bool],
        on_unwanted: Callable[[str], None] = lambda topic: None,
        answers_max: int = ANSWERS_MAX,
    ) -> None:
        def is_wanted(topic: bytes) -> bool:
            if not (wanted := wants_topic(topic.decode())):
                on_unwanted(topic.decode())
            return wanted

        self.publications = self.size = self.in_vain = self.size_in_vain = 0
        self._is_exact: BoundedCache[bytes, bool] = BoundedCache(
            lambda keys: any(wants_filter(f) for key in keys_in(keys) for f in filters_with(key)),
            answers_max=answers_max,
        )
        self._is_wanted: BoundedCache[bytes, bool] = BoundedCache(
            is_wanted, answers_max=answers_max
        )

    def note(self, keys: bytes, run: bytes, publications: int) -> None:
        """Count the PUBLISH packets of a frame with these ``keys``, as our broker gets them."""
        self.publications += publications
        self.size += len(run)
        if self._is_exact(keys):
            return
        for start, end, topic in topics_of(run):
            if not self._is_wanted(topic):
                self.in_vain += 1
                self.size_in_vain += end - start

    def forget(self) -> None:
        """Invalidate both caches after an interest change."""
        self._is_exact.clear()
        self._is_wanted.clear()
