"""May strangers speak on the federation's topics at our broker? Tried, as no file tells.

Signatures keep strangers out of what agents say to each other, not out of what gateways, operators
and an agent itself say: there the broker's ACL is the only guard. Two tries tell whether there is
one: a client without a login, and our own login on a topic that nobody needs. The list that
``federator doctor --acl`` prints lets neither through.

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
from federator.runtime.mqtt.probe import BrokerProbe, RefusedError, is_taken, plain
from federator.runtime.mqtt.secret_names import secret_name

LOOK_S: Final = 1.0
AGAIN_S: Final = 600.0
"""Between two tries: an ACL is reloaded without a word to us."""

_log = structlog.get_logger()


class Speakers(StrEnum):
    """Who may write below ``$fed/`` at our broker, beside those that must."""

    NOBODY = "nobody"
    LOGINS = "every login, as it seems"
    ANYBODY = "anybody, without a login"


async def who_may_speak(broker: BrokerAddress, *, federation: str, name: str) -> Speakers:
    """Try it.

    Args:
        name: Ours, for people who read the broker's log.

    Raises:
        LinkError: The broker cannot be reached.
    """
    nameless = replace(broker, username=None, password=None, password_file=None)
    for as_whom, who in ((nameless, Speakers.ANYBODY), (broker, Speakers.LOGINS)):
        try:
            async with BrokerProbe(as_whom, client_id=secret_name(f"{name}-stranger")) as probe:
                answer = await probe.publish(nobodys_topic(federation), DOCTORS_WORD)
        except RefusedError:
            continue
        if is_taken(plain(answer)):
            return who
    return Speakers.NOBODY


@dataclass(eq=False, repr=False)
class StrangerWatch:
    """Knows whether strangers may speak at a broker, and says so loudly in the log."""

    broker: BrokerAddress
    federation: str
    name: str
    is_up: Callable[[], bool]
    speakers: Speakers | None = field(default=None, init=False)  # as found last, if it was tried

    async def run(self) -> None:
        """Try again and again, until cancelled."""
        while True:
            tried = self.is_up() and await self._look()
            await asyncio.sleep(AGAIN_S if tried else LOOK_S)

    async def _look(self) -> bool:
        """Try; whether the broker answered."""
        try:
            found = await who_may_speak(self.broker, federation=self.federation, name=self.name)
        except LinkError:
            return False
        if found not in (self.speakers, Speakers.NOBODY):
            place = self.broker.reached_at
            topics = all_topics(self.federation)
            _log.error("acl.missing", broker=place, topics=topics, who=found.value)
        self.speakers = found
        return True
