"""Makes the transports that the configuration names: here a new one is added to agents."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from federator.config.settings import Settings
from federator.protocol.data.by_broker import ByBroker
from federator.protocol.data.transports import Transport
from federator.protocol.messages.control import Message
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.trust.guarding import Trust


class Needs(NamedTuple):
    """What a transport is made from."""

    settings: Settings
    trust: Trust | None  # seals messages; ``None`` in an open federation
    tasks: asyncio.TaskGroup
    epoch: Callable[[], Epoch]
    tell: Callable[[BrokerId, Message], None]  # sends a control message, if there is a way
    on_frames: Callable[[Sequence[bytes], BrokerId], None]  # handles a neighbour's frames
    by_broker: ByBroker  # resends what did not arrive


def _direct(needs: Needs) -> Transport:
    from federator.runtime.direct.service import DirectLinks  # noqa: PLC0415 - of few agents

    return DirectLinks(**needs._asdict())


def _datagrams(needs: Needs) -> Transport:
    from federator.runtime.datagrams.raptor import RaptorCoder  # noqa: PLC0415 - an extra
    from federator.runtime.datagrams.service import DatagramService  # noqa: PLC0415 - of few agents

    assert needs.trust is not None, "datagrams want keys"
    return DatagramService(coder=RaptorCoder(), **needs._asdict())


MAKERS: Final[dict[str, Callable[[Needs], Transport]]] = {"udp-fec": _datagrams, "direct": _direct}
"""By the name in ``links.transport``, in the order in which frames are offered to them."""


def transports_of(needs: Needs) -> list[Transport]:
    """The transports that the settings name for any neighbour, besides the brokers."""
    return [make(needs) for name, make in MAKERS.items() if needs.settings.uses(name)]
