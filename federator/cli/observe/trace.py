"""``federator trace TOPIC``: which way publications go, and how long each hop takes."""

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import getpid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from federator.cli.agent_pages import Names
from federator.cli.options import columns, config_option, settings_from
from federator.command_line import imported, wheel
from federator.config.opentelemetry import EXTRA, traces_url
from federator.config.settings import Settings
from federator.errors import DecodeError, LinkError
from federator.protocol.filters import validate_topic
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import Trace, Traced
from federator.protocol.messages.topics import trace_topic, traced_topic
from federator.protocol.opentelemetry.hop_spans import journey_spans
from federator.protocol.opentelemetry.spans import Span
from federator.protocol.telemetry.journey import Journey
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name

if TYPE_CHECKING:
    from federator.runtime.opentelemetry.exporter import OtlpExporter

OTLP_TIMEOUT_MS: Final = 5_000
OTLP_CLOSE_S: Final = 10.0
OTLP_SPANS_MAX: Final = 65_536
OWN_ANSWER_S: Final = 5.0
"""Time limit for the first answer of this machine's agent."""
INCOMPLETE: Final = 1


@click.command(name="trace")
@click.argument("topic")
@config_option
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0.1, 600), default=5.0, help="Seconds at most. [5]"
)
@click.option("--json", "as_json", is_flag=True, help="What each broker said, a line each.")
@click.option(
    "--otlp",
    "collector",
    metavar="URL",
    help="Send the trace to a collector of OpenTelemetry, too: http[s]://HOST[:PORT].",
)
def command(
    topic: str, config: Path | None, wait_s: float, as_json: bool, collector: str | None
) -> int:
    """Send a probe the way of publications on TOPIC, and print hop by hop times.

    It takes the very way of data from this broker and holds no publication: no subscriber gets
    anything. Exits 0 when every hop told of itself, 1 when one is missing.
    """
    try:
        validate_topic(topic)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    settings = settings_from(config)
    exporter = None if collector is None else exporter_to(collector, settings)
    journey = asyncio.run(follow(settings, topic, wait_s=wait_s))
    if as_json:
        echoes = [journey.start, *journey.came.values()]
        click.echo("\n".join(json.dumps(msgspec.to_builtins(echo)) for echo in echoes if echo))
    else:
        click.echo("\n".join(as_text(journey, topic)))
    if exporter is not None:
        trace_id = secrets.randbits(128)
        export(exporter, journey_spans(journey, topic, trace_id=trace_id))
        click.echo(f"trace {trace_id:032x} is at {collector}", err=True)
    return INCOMPLETE if journey.waited_for else 0


def exporter_to(collector: str, settings: Settings) -> "OtlpExporter":
    """An exporter of spans to ``collector``. Raises ``ExtraMissingError`` without the library."""
    try:
        traces_url(collector)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--otlp") from None
    sends = imported("federator.runtime.opentelemetry.exporter", wheel(EXTRA))
    resource = {"service.name": "federator trace", "service.namespace": settings.federation}
    made: OtlpExporter = sends.OtlpExporter(
        collector, resource=resource, timeout_ms=OTLP_TIMEOUT_MS, queue_spans_max=OTLP_SPANS_MAX
    )
    return made


def export(exporter: "OtlpExporter", spans: Sequence[Span]) -> None:
    """Send ``spans``. Raises ``LinkError``: the collector did not take them all."""
    for span in spans:
        exporter.add(span)
    exporter.close(OTLP_CLOSE_S)
    if exporter.exported < len(spans):
        what = f"took {exporter.exported} of {len(spans)} spans"
        raise LinkError(f"the collector {what}: {exporter.trouble or 'it is silent'}")


async def follow(settings: Settings, topic: str, *, wait_s: float) -> Journey:
    """Trace ``topic`` until all hops answered, ``wait_s`` long. Raises ``LinkError``: none did."""
    token = f"{settings.broker.id}-{getpid()}"
    client_id = secret_name(f"{settings.broker.id}-trace")
    journey = Journey()
    async with BrokerProbe(settings.broker, client_id=client_id) as probe:
        answers = traced_topic(settings.federation, token)
        if any(int(code) >= 0x80 for code in await probe.subscribe(answers)):
            raise LinkError(f"{settings.broker.reached_at}: may not read {answers}: see doctor")
        await probe.publish(trace_topic(settings.federation), encode(Trace(token, topic)))
        try:
            async with asyncio.timeout(OWN_ANSWER_S):
                journey.take(await _next(probe))
        except TimeoutError:
            text = "its agent does not answer: is `federator run` up?"
            raise LinkError(f"{settings.broker.reached_at}: {text}") from None
        with suppress(TimeoutError):  # missing hops are shown
            async with asyncio.timeout(wait_s):
                while journey.waited_for:
                    journey.take(await _next(probe))
    return journey


async def _next(probe: BrokerProbe) -> Traced:
    while True:
        packet = await probe.next_message()
        with suppress(DecodeError):  # any client may publish there
            return decode(Traced, packet.payload)


def as_text(journey: Journey, topic: str) -> list[str]:
    """The path as a tree, with times; then doubts about clocks."""
    start = journey.start
    if start is None:
        return []
    here, shown = start.path[-1], Names(journey.names).shown
    if not start.next_hops:
        return [f"{topic}: nowhere from broker {shown(here)}: {start.why}"]
    head = ("broker", "after", "this hop", "told after", "")
    rows = [head, (shown(here), "", "", "", f"{start.why}{_queues(start, shown)}")]
    rows += _branches(journey, start, "", {here})
    lines = [f"{topic} from broker {shown(here)}", "", *columns(rows)]
    return [*lines, *_doubts(journey)]


def _branches(
    journey: Journey, echo: Traced, indent: str, above: set[BrokerId]
) -> list[tuple[str, str, str, str, str]]:
    """Rows of the hops after ``echo``."""
    rows = []
    here, shown = echo.path[-1], Names(journey.names).shown
    for number, (hop, _) in enumerate(echo.next_hops, 1):
        last = number == len(echo.next_hops)
        name = f"{indent}{'└─' if last else '├─'} {shown(hop)}"
        next_echo = journey.came.get((here, hop))
        if next_echo is None:
            rows.append((name, "", "", "", "NO ANSWER"))
            continue
        times = next_echo.times_us
        spans = (f"+{_ms(times[-1] - times[0])}", _ms(times[-1] - times[-2]))
        back, what = (
            _ms(next_echo.back_us - times[0]),
            f"{_what(next_echo)}{_queues(next_echo, shown)}",
        )
        rows.append((name, *spans, back, what))
        if hop not in above:
            deeper = f"{indent}{'   ' if last else '│  '}"
            rows += _branches(journey, next_echo, deeper, above | {hop})
    return rows


def _what(echo: Traced) -> str:
    if not echo.first:
        return "was here before: dropped"
    if echo.why:
        return echo.why
    does = (("delivers", echo.delivers), ("passes on", echo.next_hops))
    return ", ".join(what for what, done in does if done)


def _queues(echo: Traced, shown: Callable[[BrokerId], str]) -> str:
    waiting = [f"{queued} bytes before {shown(hop)}" for hop, queued in echo.next_hops if queued]
    return f"; {', '.join(waiting)} wait" if waiting else ""


def _ms(micros: int) -> str:
    return f"{micros / 1000:.1f} ms".replace("-", "\N{MINUS SIGN}")


def _doubts(journey: Journey) -> list[str]:
    """Brokers with wrong clocks: their times lie outside an interval measured by one clock."""
    off: dict[BrokerId, int] = {}
    shown = Names(journey.names).shown
    for echo in journey.came.values():
        sent_us, at_us, back_us = echo.times_us[0], echo.times_us[-1], echo.back_us
        if at_us < sent_us:
            off[echo.path[-1]] = at_us - sent_us
        elif at_us > back_us:
            off[echo.path[-1]] = at_us - back_us
    if not off:
        return []
    differences = [
        f"broker {shown(id_)}'s by {_ms(abs(us))} or more {'behind' if us < 0 else 'ahead'}"
        for id_, us in sorted(off.items())
    ]
    return [
        "",
        f"Clocks differ from ours: {', '.join(differences)}. Only 'told after' is by one clock.",
    ]
