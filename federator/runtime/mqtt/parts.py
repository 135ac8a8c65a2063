"""The parts of an agent, and the one table that dispatches messages to them.

A part names its subscriptions on the control connection, the topics and the message types of other
agents that it handles, and its tasks. The agent makes the table of all its parts once: a topic or a
message type leads to its handlers, in the order of the parts.

Source: docs/ARCHITECTURE.md, "Connections".
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqtt5 import PublishPacket, TopicFilter

from federator.protocol.filters import matches
from federator.protocol.messages.control import Message

TopicHandler = Callable[[PublishPacket], None]
MessageHandler = Callable[[Any], None]
Task = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an agent: its subscriptions, its handlers by topic, filter or type, its tasks.

    Attributes:
        leave: Called before the agent sends its byes,
        end: and awaited when these are on their way.
        last: Its handlers are called after those of all other parts.
    """

    subscriptions: Sequence[TopicFilter] = ()
    topics: Mapping[str, TopicHandler] = field(default_factory=dict)
    messages: Mapping[type, MessageHandler] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)
    leave: Callable[[], None] = lambda: None
    end: Task | None = None
    last: bool = False


class Dispatch:
    """The table of topics and messages.

    Args:
        parts: Several may handle one topic and are called in this order. A message has one handler.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._by_topic: dict[str, list[TopicHandler]] = defaultdict(list)
        self._by_filter: list[tuple[str, TopicHandler]] = []
        self._by_message: dict[type, MessageHandler] = {}
        for part in sorted(parts, key=lambda part: part.last):
            for topic, handler in part.topics.items():
                if "+" in topic or "#" in topic:
                    self._by_filter.append((topic, handler))
                else:
                    self._by_topic[topic].append(handler)
            for kind, taker in part.messages.items():
                assert kind not in self._by_message, f"two parts take {kind.__name__}"
                self._by_message[kind] = taker

    def on_publish(self, packet: PublishPacket) -> None:
        """Call all handlers of a packet's topic; drop the packet without one."""
        handlers = self._by_topic.get(packet.topic)
        if handlers is None:
            handlers = [
                taker for pattern, taker in self._by_filter if matches(pattern, packet.topic)
            ]
        for handler in handlers:
            handler(packet)

    def on_message(self, message: Message) -> None:
        """Call the handler of ``message``; there is none while its feature is off."""
        taker = self._by_message.get(type(message))
        if taker is not None:
            taker(message)
