"""May strangers speak on the federation's topics at our broker? Tried, as no file tells.

Signatures keep strangers out of what agents say to each other, not out of what gateways, operators
and an agent itself say: there the broker's ACL is the only guard. Two tries tell whether there is
one: a client without a login, and our own login on a topic that nobody needs. The list that
``federator doctor --acl`` prints lets neither through.

Source: docs/security.md, "Brokers' ACLs".
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import structlog

from federator.config import BrokerAddress, Settings
from federator.errors import LinkError
from federator.protocol.messages.topics import DOCTORS_WORD, all_topics, nobodys_topic
from federator.runtime.mqtt.probe import BrokerProbe, RefusedError, plain
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


async def who_may_speak(settings: Settings) -> Speakers:
    """Try it.

    Raises:
        LinkError: The broker cannot be reached.
    """
    broker = settings.broker
    nameless = broker.model_copy(update=dict.fromkeys(("username", "password", "password_file")))
    if await _may_write(settings, nameless):
        return Speakers.ANYBODY
    named = broker.username is not None and await _may_write(settings, broker)
    return Speakers.LOGINS if named else Speakers.NOBODY


async def _may_write(settings: Settings, as_whom: BrokerAddress) -> bool:
    name = secret_name(f"{settings.broker.id}-stranger")
    try:
        async with BrokerProbe(as_whom, client_id=name) as probe:
            answer = await probe.publish(nobodys_topic(settings.federation), DOCTORS_WORD)
    except RefusedError:
        return False
    return plain(answer) in ("success", "no matching subscribers")


class StrangerWatch:
    """Says loudly, in the log and in the status, that strangers may speak at our broker.

    Args:
        settings: Where it is.
        is_up: Whether we are there.

    Attributes:
        speakers: What was found last; ``None`` before the first try.
    """

    def __init__(self, settings: Settings, is_up: Callable[[], bool]) -> None:
        self.speakers: Speakers | None = None
        self._settings = settings
        self._is_up = is_up

    async def run(self) -> None:
        """Try again and again, until cancelled."""
        while True:
            tried = self._is_up() and await self._look()
            await asyncio.sleep(AGAIN_S if tried else LOOK_S)

    async def _look(self) -> bool:
        """Try; whether the broker answered."""
        try:
            found = await who_may_speak(self._settings)
        except LinkError:
            return False
        if found not in (self.speakers, Speakers.NOBODY):
            place = self._settings.broker.reached_at
            topics = all_topics(self._settings.federation)
            _log.error("acl.missing", broker=place, topics=topics, who=found.value)
        self.speakers = found
        return True
