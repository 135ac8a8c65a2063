"""``federator drain BROKER`` moves its clients away before maintenance, ``undrain`` ends that.

The order is signed for the run of the agent that is asked, which its page tells.
"""

import asyncio
import os
import time
from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, get, url_option
from federator.cli.options import FILE, config_option, json_option, print_result, settings_from
from federator.config.security import role_keys
from federator.config.settings import Settings
from federator.errors import ConfigError, LinkError
from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.operators import Drain
from federator.protocol.messages.topics import drain_topic
from federator.protocol.trust.words import NOBODY
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.trust.words import SignedWords, vouch_by

OBEYED_WITHIN_S = 10.0
REPEAT_S = 1.0


key_option = click.option("--key", type=FILE, help="An operator's key. [keys.operator_file]")


@click.command(name="drain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
@key_option
@json_option
def drain(
    broker: int, config: Path | None, url: str | None, key: Path | None, as_json: bool
) -> None:
    """Move the clients of BROKER away, without loss.

    Gateways attach them elsewhere; no new ones come. Any agent of the federation passes the order
    on. Clients without a gateway stay: see docs/failover.md.
    """
    order(BrokerId(broker), draining=True, config=config, url=url, key=key)
    text = f"broker {broker} is draining; `federator controller status` shows its clients"
    print_result({"broker": broker, "state": "draining"}, [text], as_json=as_json)


@click.command(name="undrain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
@key_option
@json_option
def undrain(
    broker: int, config: Path | None, url: str | None, key: Path | None, as_json: bool
) -> None:
    """Let the clients of BROKER come back. No client is moved: new clients may choose it again."""
    order(BrokerId(broker), draining=False, config=config, url=url, key=key)
    text = f"broker {broker} takes clients again"
    print_result({"broker": broker, "state": "up"}, [text], as_json=as_json)


def order(
    broker: BrokerId, *, draining: bool, config: Path | None, url: str | None, key: Path | None
) -> None:
    """Give the order until the agent of this machine sees it obeyed, ``OBEYED_WITHIN_S`` long."""
    settings = settings_from(config)
    keys = role_keys(key or settings.keys.operator_file, "operator", "--key, keys.operator_file")
    signer = SignedWords(None, vouch=vouch_by(keys))
    where, wanted = agent_url(config, url), "draining" if draining else "up"
    ids = [row.get("broker") for row in get(where, "/controller").get("brokers", [])]
    if ids and broker not in ids:
        text = f"broker {broker}: no such broker: known here are {', '.join(map(str, ids))}"
        raise ConfigError(text, exit_code=os.EX_DATAERR)
    end_s = time.monotonic() + OBEYED_WITHIN_S
    while time.monotonic() < end_s:
        run = bytes.fromhex(get(where, "/status").get("security", {}).get("run", ""))
        topic, payload = drain_topic(settings.federation), encode(Drain(broker, draining))
        asyncio.run(_give(settings, topic, signer.sign(topic, payload, to=run or NOBODY)))
        again_s = time.monotonic() + REPEAT_S
        while time.monotonic() < again_s:
            brokers = get(where, "/controller").get("brokers", [])
            if any(b.get("broker") == broker and b.get("state") == wanted for b in brokers):
                return
            time.sleep(0.1)
    text = f"broker {broker}: not obeyed in {OBEYED_WITHIN_S:.0f} s: is it in reach"
    raise LinkError(text + ("?" if keys else ", and does its agent want --key of an operator?"))


async def _give(settings: Settings, topic: str, payload: bytes) -> None:
    client_id = secret_name(f"{settings.broker.id}-drain")
    async with BrokerProbe(settings.broker, client_id=client_id) as probe:
        await probe.publish(topic, payload)
