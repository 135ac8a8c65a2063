"""``federator tap``: the control messages for this agent, decoded as they arrive.

Neighbours send to an agent by publishing on its broker, so everything that it receives can be read
there, and nothing that it sends. Signatures and seals are not checked here: the agent does that.
"""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click
import mqtt5
import msgspec

from federator.cli.options import config_option, settings_from
from federator.config.settings import Settings
from federator.errors import DecodeError, LinkError
from federator.protocol.forwarding.bundles import frames_of
from federator.protocol.forwarding.frames import FRAME_VERSION, Frame
from federator.protocol.messages.codec import CONTROL_KINDS, decode
from federator.protocol.trust.guard import overheard
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name

DATA_KIND, SPEAK_UP_KIND = "data", "new_regular_topic"
KINDS = (*CONTROL_KINDS, SPEAK_UP_KIND, DATA_KIND)
SHOWN_ITEMS_MAX = 8
SHOWN_CHARACTERS_MAX = 200


@click.command(name="tap")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, nothing shortened.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these topics.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many.")
def command(config: Path | None, as_json: bool, kinds: tuple[str, ...], count: int | None) -> None:
    """Show the control traffic of this broker, decoded, live.

    This is what the agent hears, believed or not; what it says appears on its neighbours' brokers.
    In a sealed federation only hellos can be read.
    """
    asyncio.run(_tap(settings_from(config), as_json, kinds or KINDS, count))


async def _tap(
    settings: Settings, as_json: bool, kinds: tuple[str, ...], count: int | None
) -> None:
    root = f"$fed/{settings.federation}"
    client_id = secret_name(f"{settings.broker.id}-tap")
    place = settings.broker.reached_at
    async with BrokerProbe(settings.broker, client_id=client_id) as probe:
        answers = await probe.subscribe(*(f"{root}/{kind}" for kind in kinds))
        if refused := [k for k, a in zip(kinds, answers, strict=True) if int(a) >= 0x80]:
            raise LinkError(f"{place}: may not read {root}/{refused[0]}: see doctor")
        click.echo(f"listening to {root} on {place}; Ctrl-C ends", err=True)
        shown = dropped = 0
        while count is None or shown < count:
            record = read(await probe.next_message(), datetime.now(UTC))
            click.echo(json.dumps(record, default=str) if as_json else as_line(record))
            shown += 1
            if probe.messages_dropped != dropped:
                dropped = probe.messages_dropped
                click.echo(f"federator: {dropped} not shown so far: too fast for us", err=True)


def read(packet: mqtt5.PublishPacket, at: datetime) -> dict[str, object]:
    """One publication as JSON-ready values; ``error`` when it does not decode."""
    kind = packet.topic.rpartition("/")[2]
    record: dict[str, object] = {
        "at": at.isoformat(timespec="milliseconds"),
        "kind": kind,
        "bytes": len(packet.payload),
    }
    try:
        if kind == SPEAK_UP_KIND:
            return {**record, "text": packet.payload.decode("utf-8", errors="replace")}
        seal, body = overheard(packet.payload)
        record["seal"] = seal
        if body is None:
            return record
        if kind == DATA_KIND:
            first, *more = (_frame(frame) for frame, _ in frames_of(body))
            labelled = {**record, "frame": {"seal": seal, **first}}
            return {**labelled, "bundled": more} if more else labelled
        message = decode(kind, body)
        fields = {k: msgspec.to_builtins(v) for k, v in msgspec.structs.asdict(message).items()}
        return {**record, "message": type(message).__name__, **fields}
    except DecodeError as error:
        return {**record, "error": str(error)}


def _frame(frame: Frame) -> dict[str, object]:
    keys = [frame.keys[at : at + 8].hex() for at in range(0, len(frame.keys), 8)]
    return {
        "version": FRAME_VERSION,
        "sender": frame.sender,
        "origin": frame.origin,
        "epoch": frame.epoch,
        "seq": frame.seq,
        "hops": frame.hops,
        "hop_limit": frame.hop_limit,
        "qos": "1 and 2" if frame.acknowledged else "0",
        "publications": frame.publications,
        "origin_time_us": frame.origin_time_us,
        "filter_keys": keys,
        "responsible_for": [key for i, key in enumerate(keys) if frame.mask >> i & 1],
        "body_bytes": len(frame.body),
    }


def as_line(record: Mapping[str, object]) -> str:
    """The message for people: time, topic, then the fields, long lists and texts cut."""
    at = str(record["at"])[11:23]
    frame = record.get("frame")
    fields = frame if isinstance(frame, dict) else record
    hidden = ("at", "kind", "message")
    if isinstance(more := record.get("bundled"), list):
        fields = {**fields, "bundled": len(more)}
    shown = " ".join(f"{k}={_short(v)}" for k, v in fields.items() if k not in hidden)
    name = record.get("message", "")
    return f"{at} {record['kind']:<13} {name} {shown}".replace("  ", " ")


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        items = ",".join(_short(item) for item in value[:SHOWN_ITEMS_MAX])
        more = len(value) - SHOWN_ITEMS_MAX
        return f"[{items}]" if more <= 0 else f"[{items},+{more}]"
    text = value if isinstance(value, str) else str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."
