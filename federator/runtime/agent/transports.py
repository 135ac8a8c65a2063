"""Makes the transports that the configuration names: here a new one is added to agents."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from federator.config.settings import Settings
from federator.protocol.data.transports import Transport, Transports
from federator.runtime.agent.control_parts import ControlParts
from federator.runtime.data.data_path import DataPath

if TYPE_CHECKING:
    from federator.runtime.datagrams.service import DatagramService
    from federator.runtime.direct.service import DirectLinks


def _direct(
    settings: Settings, tasks: asyncio.TaskGroup, control: ControlParts, path: DataPath
) -> Transport:
    from federator.runtime.direct.service import DirectLinks  # noqa: PLC0415 - of few agents

    return DirectLinks(
        settings=settings,
        trust=control.trust,
        tasks=tasks,
        epoch=lambda: control.epoch,
        tell=control.traffic.tell,
        on_frames=lambda neighbour, frames: path.on_frames(frames, neighbour),
        by_broker=path.by_broker,
    )


def _datagrams(
    settings: Settings, tasks: asyncio.TaskGroup, control: ControlParts, path: DataPath
) -> Transport:
    from federator.runtime.datagrams.raptor import RaptorCoder  # noqa: PLC0415 - an extra
    from federator.runtime.datagrams.service import DatagramService  # noqa: PLC0415 - of few agents

    assert control.trust is not None, "datagrams want keys"
    return DatagramService(
        settings=settings,
        trust=control.trust,
        tasks=tasks,
        coder=RaptorCoder(),
        epoch=lambda: control.epoch,
        tell=control.traffic.tell,
        on_frames=lambda neighbour, frames: path.on_frames(frames, neighbour),
        by_broker=path.by_broker,
    )


def direct_of(transports: Transports) -> "DirectLinks | None":
    """The links straight to agents, whose metrics have names of their own."""
    return cast("DirectLinks | None", transports.named("direct"))


def datagrams_of(transports: Transports) -> "DatagramService | None":
    return cast("DatagramService | None", transports.named("udp-fec"))


Maker = Callable[[Settings, asyncio.TaskGroup, ControlParts, DataPath], Transport]

MAKERS: Final[dict[str, Maker]] = {"udp-fec": _datagrams, "direct": _direct}
"""By the name in ``links.transport``, in the order in which frames are offered to them."""


def transports_of(
    settings: Settings,
    tasks: asyncio.TaskGroup,
    control: ControlParts,
    path: DataPath,
    makers: Mapping[str, Maker] = MAKERS,
) -> list[Transport]:
    """The transports that ``settings`` name for any neighbour, besides the brokers."""
    used = [make for name, make in makers.items() if settings.uses(name)]
    return [make(settings, tasks, control, path) for make in used]
