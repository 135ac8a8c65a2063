"""What operators order and ask on a broker, and what its agent answers, as JSON.

Source: docs/protocol.md 15; docs/cli.md.
"""

from typing import Annotated, Any, Literal

import msgspec

from federator.protocol.messages.fields import Id, Name, Natural, Token

Page = Literal["live", "explain", "mesh", "search"]
"""The pages of an agent over MQTT: its state and its links'; where a topic goes; its part in the
mesh of a filter; clients, topics and filters that match a text.
"""


class Drain(msgspec.Struct, frozen=True):
    """An operator's order to any agent: move the clients of ``broker`` away, or let them return."""

    broker: Id
    drain: bool


class Trace(msgspec.Struct, frozen=True):
    """An operator's question to the agent: where does ``topic`` go from here, and how fast?"""

    token: Token  # returned with the answers, which go to ``traced_topic(..., token)``
    topic: Name  # as clients of this broker would publish on it


class Traced(msgspec.Struct, frozen=True):
    """One broker's answer to a ``Trace``; the first is the asked agent's own."""

    # The trace's way there, from the asked broker to the reporting one.
    path: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1)]
    times_us: tuple[Natural, ...]  # when the trace was at each of them, by their own clocks
    back_us: Natural  # when the asked agent received the report, by its clock
    first: bool  # whether the trace had not been there before; otherwise it goes no further
    delivers: bool  # whether a publication would be delivered there
    # The next hops, and the bytes that wait before the trace.
    next_hops: tuple[tuple[Id, Natural], ...]
    why: str  # what the asked agent would do with the topic, or what stops it
    names: dict[str, str] = {}  # the names of those of these brokers that have one, by id
    # How it goes to each of ``next_hops``; an older agent does not say.
    transports: tuple[str, ...] = ()


class PageQuestion(msgspec.Struct, frozen=True):
    """A console's question to the agent; the answer goes to ``paged_topic(..., token)``."""

    token: Token  # drawn for each run of a console
    number: Natural  # returned with the answer
    page: Page
    about: Annotated[str, msgspec.Meta(max_length=65_535)] = ""  # a topic, a filter, or a text


class PageAnswer(msgspec.Struct, frozen=True):
    """The answer of the agent of ``broker`` to a ``PageQuestion``."""

    broker: Id
    number: Natural  # that of the question
    at_us: Natural  # by its wall clock
    body: dict[str, Any]  # that of the page with the same name over HTTP, where there is one
    wrong: str = ""  # why there is no body
