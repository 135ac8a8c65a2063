"""What one side brought to a hub's broker, and how much of that nobody there wanted.

A bounded cover asks for more than is wanted; what comes for that is carried in vain. Most frames
name a filter that somebody wants exactly, and then all in them is wanted, so a look at their keys
is enough. Of others each topic is looked up. Both answers are remembered until a wish changes.

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
        filters_with: The filters that frames of that side call so.
        wants_filter: Whether another side wants exactly this filter.
        wants_topic: Whether another side wants what is published there.
        on_unwanted: Told a topic that nobody wants, once while that is remembered.
        answers_max: Topics, and keys of frames, whose answer is remembered.

    Attributes:
        publications: Handed to the hub's broker, and
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
        """The PUBLISH packets of a frame with these ``keys`` came, as our broker gets them."""
        self.publications += publications
        self.size += len(run)
        if self._is_exact(keys):
            return
        for start, end, topic in topics_of(run):
            if not self._is_wanted(topic):
                self.in_vain += 1
                self.size_in_vain += end - start

    def forget(self) -> None:
        """Somebody wants otherwise."""
        self._is_exact.clear()
        self._is_wanted.clear()
