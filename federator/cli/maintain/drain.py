"""``federator drain BROKER`` moves its clients away before maintenance, ``undrain`` ends that."""

import asyncio
import time
from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, get, url_option
from federator.cli.options import config_option, settings_from
from federator.config import Settings
from federator.errors import LinkError
from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.operators import Drain
from federator.protocol.messages.topics import drain_topic
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name

OBEYED_WITHIN_S = 10.0
REPEAT_S = 1.0


@click.command(name="drain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
def drain(broker: int, config: Path | None, url: str | None) -> None:
    """Move the clients of BROKER away, without loss.

    Gateways attach them elsewhere; no new ones come. Any agent of the federation passes the order
    on. Clients without a gateway stay: see docs/failover.md.
    """
    order(BrokerId(broker), draining=True, config=config, url=url)
    click.echo(f"broker {broker} is draining; `federator controller status` shows its clients")


@click.command(name="undrain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
def undrain(broker: int, config: Path | None, url: str | None) -> None:
    """Let the clients of BROKER come back. Nobody is moved: new clients may choose it again."""
    order(BrokerId(broker), draining=False, config=config, url=url)
    click.echo(f"broker {broker} takes clients again")


def order(broker: BrokerId, *, draining: bool, config: Path | None, url: str | None) -> None:
    """Give the order until the agent of this machine sees it obeyed.

    Raises:
        LinkError: It is not within ``OBEYED_WITHIN_S``.
    """
    settings = settings_from(config)
    where = agent_url(config, url)
    end_s = time.monotonic() + OBEYED_WITHIN_S
    while time.monotonic() < end_s:
        asyncio.run(_give(settings, Drain(broker, draining)))
        again_s = time.monotonic() + REPEAT_S
        while time.monotonic() < again_s:
            if _obeyed(where, broker, draining=draining):
                return
            time.sleep(0.1)
    raise LinkError(f"broker {broker}: not obeyed in {OBEYED_WITHIN_S:.0f} s: is it in reach?")


async def _give(settings: Settings, word: Drain) -> None:
    client_id = secret_name(f"{settings.broker.id}-drain")
    async with BrokerProbe(settings.broker, client_id=client_id) as probe:
        await probe.publish(drain_topic(settings.federation), encode(word))


def _obeyed(where: str, broker: BrokerId, *, draining: bool) -> bool:
    wanted = "draining" if draining else "up"
    brokers = get(where, "/controller").get("brokers", [])
    return any(b.get("broker") == broker and b.get("state") == wanted for b in brokers)
