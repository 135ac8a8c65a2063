"""How far every spool of the federation has come, by listening at its brokers.

From one broker the others are found: each agent keeps a guide on its broker that lists everyone's
address. A head that is retained may be that of an agent long dead; only an agent that was heard
just now is asked for something new, so that a query never promises what nobody will answer.
"""

import logging
import threading
import time
from dataclasses import dataclass

from federator.errors import DecodeError
from federator.protocol.discovery import RollCall
from federator.protocol.messages.guide import Guide
from federator.protocol.messages.json_codec import decode
from federator.protocol.messages.topics import guide_topic, metrics_head_topic
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.telemetry.replay import Head, decode_head
from federator.protocol.types import Millis
from federator_analytics.errors import UnavailableError
from federator_analytics.sources.live.keys import Words
from federator_analytics.sources.live.link import Link, Options, Place, place
from federator_analytics.sources.live.replay import Held

BROKERS_MAX = 1_024
"""Connections one reader opens."""

POLL_S = 0.05
REASON_S = 1.0
COMPLAINT_GAP_MS = Millis(60_000)

_log = logging.getLogger(__name__)


@dataclass
class _Heard:
    """The newest head of a broker, whence it came, and when it last came live."""

    head: Head
    place: Place
    live_s: float | None


class Heads:
    """Listens from ``open`` to ``close``. Safe to ask from one thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._broker_of: dict[str, int] = {}  # by URL, as each broker's own guide says
        self._guides: dict[str, dict[int, str]] = {}  # by URL of where it stands
        self._heard: dict[int, _Heard] = {}
        self._roll_calls: dict[str, RollCall] = {}  # by URL
        self._words = Words(options.keys)
        self._complaints: RateLimiter[str] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=BROKERS_MAX
        )

    def open(self) -> None:
        """Connect, find the others, and wait until they are heard or have had their time.

        Raises ``UnavailableError``: no broker answered.
        """
        for start in self._options.places:
            self._connect(start)
        self._wait_for_one()
        end_s = time.monotonic() + self._options.discover_s
        while self.missing() and time.monotonic() < end_s:
            time.sleep(POLL_S)
            self._follow()
        for broker, url in sorted(self.missing().items()):
            _log.warning("federator_mqtt: the agent of broker %s at %s is not heard", broker, url)

    def close(self) -> None:
        """Disconnect from all."""
        for link in self._links:
            link.close()

    def missing(self) -> dict[int, str]:
        """Listed brokers whose agents are not heard, and their addresses."""
        alive = {held.broker for held in self.alive()}
        with self._lock:
            listed = {id_: heard.place.url for id_, heard in self._heard.items()}
            listed |= self._listed() | {-n: link.place.url for n, link in self._unnamed()}
        return {broker: url for broker, url in listed.items() if broker not in alive}

    def alive(self) -> list[Held]:
        """What the spools of those hold who were heard just now, by broker."""
        self._follow()
        since_s = time.monotonic() - self._options.heard_within_s
        with self._lock:
            return [
                Held(broker, heard.head.spool, heard.head.first, heard.head.last)
                for broker, heard in sorted(self._heard.items())
                if heard.live_s is not None and heard.live_s >= since_s
            ]

    def place_of(self, broker: int) -> Place | None:
        """The place to ask this broker's agent at, also when it is silent just now."""
        with self._lock:
            if broker in self._heard:
                return self._heard[broker].place
            url = self._listed().get(broker)
        return place(url, self._options.places[0].access) if url else None

    def _listed(self) -> dict[int, str]:
        return {id_: url for urls in self._guides.values() for id_, url in urls.items()}

    def _unnamed(self) -> list[tuple[int, Link]]:
        """Brokers we were told of that have not said who they are."""
        named = set(self._broker_of) | {heard.place.url for heard in self._heard.values()}
        return [(n, link) for n, link in enumerate(self._links, 1) if link.place.url not in named]

    def _connect(self, where: Place) -> None:
        name = self._options.federation
        topics = [metrics_head_topic(name), guide_topic(name)]
        link = Link(
            where, topics, lambda t, payload, kept: self._on_message(where, t, payload, kept)
        )
        self._links.append(link)
        link.start()

    def _wait_for_one(self) -> None:
        end_s = time.monotonic() + self._options.connect_s
        while not any(link.ready for link in self._links):
            refused = all(link.refused for link in self._links)
            if refused or time.monotonic() >= end_s:
                self.close()
                raise UnavailableError("; ".join(map(_why_not, self._options.places)))
            time.sleep(POLL_S)

    def _follow(self) -> None:
        """Connect to those who are listed and whom no link reaches yet."""
        with self._lock:
            reached = {link.place.url for link in self._links}
            known = set(self._broker_of.values()) | set(self._heard)
            wanted = [
                url
                for broker, url in sorted(self._listed().items())
                if url and url not in reached and broker not in known
            ]
        access = self._options.places[0].access
        for url in wanted[: BROKERS_MAX - len(self._links)]:
            self._connect(place(url, access))

    def _on_message(self, where: Place, topic: str, payload: bytes, retained: bool) -> None:
        if not payload:
            return  # what was retained is taken back
        with self._lock:
            try:
                if topic == guide_topic(self._options.federation):
                    guide = decode(Guide, payload)
                    self._words.check(topic, payload, broker=guide.broker, again=True)
                    self._on_guide(where, guide)
                    self._on_roll(where, guide.roll, retained)
                else:
                    head = decode_head(payload)
                    # What is said live is new: a copy said at another broker comes behind it.
                    self._words.check(topic, payload, broker=head.broker, again=retained)
                    self._on_head(where, head, retained)
            except DecodeError as error:
                if self._complaints.allow(where.url, Millis(int(time.monotonic() * 1_000))):
                    _log.warning("federator_mqtt: %s: %s", where.url, error)

    def _on_guide(self, where: Place, guide: Guide) -> None:
        self._broker_of[where.url] = guide.broker
        if self._options.discover:
            listed = {int(each.id): each.address for each in guide.brokers if each.state != "gone"}
            self._guides[where.url] = listed

    def _on_roll(self, where: Place, roll: int, retained: bool) -> None:
        """Subscribe again when the agent there asks whoever is ours to: see ``Guide.roll``."""
        roll_call = self._roll_calls.setdefault(where.url, RollCall())
        now_ms = Millis(int(time.monotonic() * 1_000))
        if roll_call.asks(roll, retained=retained, now_ms=now_ms):
            for link in self._links:
                if link.place.url == where.url:
                    link.subscribe_again()

    def _on_head(self, where: Place, head: Head, retained: bool) -> None:
        live_s = None if retained else time.monotonic()
        if live_s is not None or head.broker not in self._heard:
            self._heard[head.broker] = _Heard(head, where, live_s)


def _why_not(where: Place) -> str:
    """Why there is no connection to it: a thread that retries does not say."""
    link = Link(where, ["$SYS/broker/version"], lambda *_: None)
    try:
        link.connect(REASON_S)
    except UnavailableError as error:
        return str(error)
    finally:
        link.close()
    return f"broker {where.url}: answered too late"
