"""``federator drain BROKER``: move its clients away before maintenance."""

import asyncio
import time
from os import getpid
from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, get, url_option
from federator.cli.options import config_option, settings_from
from federator.config import Settings
from federator.errors import LinkError
from federator.protocol.guide import Drain, drain_topic, encode
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.probe import BrokerProbe

OBEYED_WITHIN_S = 10.0
REPEAT_S = 1.0


@click.command(name="drain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
def command(broker: int, config: Path | None, url: str | None) -> None:
    """Move the clients of BROKER away, without loss.

    Gateways attach them elsewhere; no new ones come. Any agent of the federation passes the order
    on. Clients without a gateway stay: see docs/failover.md.
    """
    order(BrokerId(broker), drain=True, config=config, url=url)
    click.echo(f"broker {broker} is draining; `federator controller status` shows its clients")


def order(broker: BrokerId, *, drain: bool, config: Path | None, url: str | None) -> None:
    """Give the order until the agent of this machine sees it obeyed.

    Raises:
        LinkError: It is not within ``OBEYED_WITHIN_S``.
    """
    settings = settings_from(config)
    where = agent_url(config, url)
    end_s = time.monotonic() + OBEYED_WITHIN_S
    while time.monotonic() < end_s:
        asyncio.run(_give(settings, Drain(broker, drain)))
        again_s = time.monotonic() + REPEAT_S
        while time.monotonic() < again_s:
            if _obeyed(where, broker, drain):
                return
            time.sleep(0.1)
    raise LinkError(f"broker {broker}: not obeyed in {OBEYED_WITHIN_S:.0f} s: is it in reach?")


async def _give(settings: Settings, word: Drain) -> None:
    client_id = f"federator-{settings.broker.id}-drain-{getpid()}"
    async with BrokerProbe(settings.broker, client_id=client_id) as probe:
        await probe.publish(drain_topic(settings.federation), encode(word))


def _obeyed(where: str, broker: BrokerId, drain: bool) -> bool:
    wanted = "draining" if drain else "up"
    brokers = get(where, "/controller").get("brokers", [])
    return any(b.get("broker") == broker and b.get("state") == wanted for b in brokers)
