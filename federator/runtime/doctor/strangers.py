"""Tests whether strangers may publish on the federation's topics at our broker.

Signatures protect the messages between agents, but not those of gateways, operators and an agent to
itself: there the broker's ACL is the only guard. Two tries show whether there is one: a client
without a login, and our own login on a topic that no role needs. The list that ``federator doctor
--acl`` prints refuses both.

Source: docs/security.md, "Brokers' ACLs".
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import structlog

from federator.config.brokers import BrokerAddress
from federator.errors import LinkError
from federator.protocol.messages.topics import DOCTORS_WORD, all_topics, nobodys_topic
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.probe import BrokerProbe, RefusedError, is_taken, plain
from federator.runtime.mqtt.secret_names import secret_name

LOOK_S: Final = 1.0
AGAIN_S: Final = 600.0
"""Between two tries: an ACL is reloaded without notice."""

_log = structlog.get_logger()


class Speakers(StrEnum):
    """Which clients may publish below ``$fed/`` at our broker, beside those that must."""

    NOBODY = "nobody"
    LOGINS = "every login, as it seems"
    ANYBODY = "anybody, without a login"


async def who_may_speak(broker: BrokerAddress, *, federation: str, name: str) -> Speakers:
    """Try to publish as a stranger.

    Args:
        name: Ours, for readers of the broker's log.

    Raises:
        LinkError: The broker cannot be reached.
    """
    nameless = replace(broker, username=None, password=None, password_file=None)
    for as_whom, speakers in ((nameless, Speakers.ANYBODY), (broker, Speakers.LOGINS)):
        try:
            async with BrokerProbe(as_whom, client_id=secret_name(f"{name}-stranger")) as probe:
                answer = await probe.publish(nobodys_topic(federation), DOCTORS_WORD)
        except RefusedError:
            continue
        if is_taken(plain(answer)):
            return speakers
    return Speakers.NOBODY


@dataclass(eq=False, repr=False)
class StrangerWatch:
    """Checks whether strangers may publish at a broker, and logs an error if so."""

    broker: BrokerAddress
    federation: str
    name: str
    is_up: Callable[[], bool]
    speakers: Speakers | None = field(default=None, init=False)  # the last result, if there is one

    def part(self) -> Part:
        return Part(tasks={"strangers": self.run})

    async def run(self) -> None:
        """Try again and again, until cancelled."""
        while True:
            tried = self.is_up() and await self._look()
            await asyncio.sleep(AGAIN_S if tried else LOOK_S)

    async def _look(self) -> bool:
        """Try once; return whether the broker answered."""
        try:
            speakers = await who_may_speak(self.broker, federation=self.federation, name=self.name)
        except LinkError:
            return False
        if speakers not in (self.speakers, Speakers.NOBODY):
            place = self.broker.reached_at
            topics = all_topics(self.federation)
            _log.error("acl.missing", broker=place, topics=topics, who=speakers.value)
        self.speakers = speakers
        return True
