"""Questions to agents: is a client's subscription known across the federation?

A client's SUBACK waits for the answer, but not for long, and not at all where no agent answers. In
a planned move the client's former connection waits, and asks again until the agent says yes.

Source: docs/gateway.md; docs/protocol.md 14.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federator.gateway.clients.proxied_client import ProxiedClient
from federator.protocol.types import BrokerId

AGAIN_S: Final = 0.5


@dataclass(slots=True)
class _Question:
    """A question that no agent has answered; ``on_end`` takes whether the filters are known."""

    client: ProxiedClient
    on_end: Callable[[bool], None]
    end: asyncio.Handle  # the time limit


class Settlings:
    """The questions of one gateway.

    Args:
        first: Less than all numbers; grows at each start, so that no earlier answer counts.
    """

    def __init__(self, *, first: int = 0) -> None:
        self._number = first
        self._questions: dict[int, _Question] = {}

    def ask(
        self,
        client: ProxiedClient,
        filters: tuple[str, ...],
        on_end: Callable[[bool], None],
        *,
        within_s: float,
        patient: bool = False,
    ) -> None:
        """Ask the agent of the client's broker whether ``filters`` are known.

        ``on_end`` is called with its answer; with no if none comes in time, or at once if none can
        be expected, unless we are ``patient``.
        """
        self._number += 1
        broker = client.broker
        expected = broker is not None and broker.ask_settled(self._number, filters)
        if not (expected or patient):
            within_s = 0.0
        end = asyncio.get_running_loop().call_later(within_s, self._end, self._number, False)
        self._questions[self._number] = _Question(client, on_end, end)

    def ask_until_known(
        self,
        client: ProxiedClient,
        filters: tuple[str, ...],
        on_end: Callable[[], None],
        *,
        within_s: float,
    ) -> None:
        """Ask about a client that is moving until the answer is yes, and then call ``on_end``.

        It is called at the time limit, too.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s

        def ask() -> None:
            if client.moving:
                left_s = max(0.0, end_s - loop.time())
                self.ask(client, filters, on_answer, within_s=left_s, patient=True)

        def on_answer(known: bool) -> None:
            if known or loop.time() >= end_s:
                on_end()
            else:
                loop.call_later(AGAIN_S, ask)

        ask()

    def on_answer(self, broker: BrokerId, token: int, known: bool) -> None:
        """Take an agent's answer; it counts if the client is at that agent's ``broker``."""
        question = self._questions.get(token)
        if question is not None and (at := question.client.broker) and at.id == broker:
            self._end(token, known)

    def forget(self, client: ProxiedClient) -> None:
        """Drop the questions of a client that is gone."""
        for number, question in [*self._questions.items()]:
            if question.client is client:
                question.end.cancel()
                del self._questions[number]

    def _end(self, number: int, known: bool) -> None:
        question = self._questions.pop(number)
        question.end.cancel()
        question.on_end(known)
