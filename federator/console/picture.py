"""What a console shows of a federation: brokers and links, from what agents tell and what we see.

Each broker and link has a record, and each record the number of the change that made it. Whoever
shows them says which number he has seen, and gets what changed since: a reader that is slow misses
states in between, and nothing has to be kept for him.

A broker is down when we cannot reach it and no neighbour says that its link to it is up. Where one
does, only our own way there is broken. A link has two ends, and is up when no end that answers says
otherwise.

Source: docs/console.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor, log10
from typing import Annotated, Any, Final, Literal

import msgspec

from federator.console.answers import read_answer
from federator.protocol.messages.broker_names import sound_name
from federator.protocol.messages.fields import Id
from federator.protocol.messages.guide import Guide, GuideBroker, Takeover
from federator.protocol.types import BrokerId, Millis

SILENT_AFTER_MS: Final = 6_000
"""Without an answer for so long an agent is silent,"""
DOUBTED_MS: Final = 1_500
"""or for so long after its broker said that it vanished."""

BROKERS_MAX: Final = 1_024
LINKS_MAX: Final = 16_384
"""Records; what would make more is counted in ``Picture.left_out``."""

State = Literal["ready", "not_ready", "draining", "starting", "silent", "unreached", "down"]
Pair = tuple[BrokerId, BrokerId]
Record = dict[str, Any]

_Text = Annotated[str, msgspec.Meta(max_length=1_024)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class LiveLink(msgspec.Struct, frozen=True):
    """What an agent tells of a connection to a neighbour; as ``/status`` does."""

    neighbour: Id | None
    state: _Text
    address: _Text = ""
    reason: _Text | None = None
    cost: _Amount | None = None
    rtt_ms: _Amount | None = None
    rate: _Amount | None = None
    capacity: _Amount | None = None
    load: _Amount | None = None
    datagrams: dict[str, Any] | None = None
    direct: dict[str, Any] | None = None

    @property
    def transport(self) -> str:
        """How it carries publications."""
        scheme = self.address.partition("://")[0][:8]
        extra = [
            what
            for what, told in (("datagrams", self.datagrams), ("direct", self.direct))
            if told is not None and told.get("used")
        ]
        return " + ".join([scheme, *extra])


class LivePage(msgspec.Struct, frozen=True):
    """What an agent answers when it is asked for the page ``live``."""

    ready: bool
    ready_reason: _Text
    epoch: _Count
    name: str = ""
    release: _Text = ""
    standing: _Text = ""
    standing_reasons: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    run: _Text | None = None
    draining: bool = False
    clients: _Count | None = None
    core_of: _Count = 0
    filters: _Count = 0
    published: _Count = 0
    delivered: _Count = 0
    dropped: _Count = 0
    links: Annotated[tuple[LiveLink, ...], msgspec.Meta(max_length=4_096)] = ()


def read_live(body: Mapping[str, Any]) -> LivePage:
    """The page in an answer.

    Raises:
        DecodeError: It is none.
    """
    return read_answer(LivePage, body, called="page live")


@dataclass(slots=True)
class _Known:
    """What is known of one broker."""

    connected: bool = False
    since_ms: Millis = Millis(0)  # since when it is connected, or is not
    heard_ms: Millis | None = None  # when its agent last answered
    at_us: int = 0  # that answer's time, by the agent's clock
    page: LivePage | None = None
    rates: Record = field(default_factory=dict)
    doubted_ms: Millis | None = None  # when its broker last said that it vanished
    guided: GuideBroker | None = None
    address: str = ""
    links: dict[BrokerId, LiveLink] = field(default_factory=dict)


class Picture:
    """Brokers and links as they are shown.

    Attributes:
        version: The number of the newest change.
        generation: Counts removals: who has seen another one is to be shown everything.
    """

    def __init__(self) -> None:
        self.version = 0
        self.generation = 1
        self.left_out = 0
        self.guide: Guide | None = None
        self._known: dict[BrokerId, _Known] = {}
        self._pairs: dict[BrokerId, set[BrokerId]] = {}
        self._brokers: dict[BrokerId, tuple[int, Record]] = {}
        self._links: dict[Pair, tuple[int, Record]] = {}

    # -- what comes ------------------------------------------------------------------------------

    def on_connected(self, broker: BrokerId, url: str, *, now_ms: Millis) -> None:
        """We reach the broker at ``url``, and may ask its agent.

        Whom we reach has room before those of whom we only heard.
        """
        if broker not in self._known and len(self._known) >= BROKERS_MAX:
            self._make_room()
        known = self._of(broker)
        if known is None:
            return
        known.connected, known.since_ms, known.address = True, now_ms, url
        self.look(broker, now_ms=now_ms)

    def on_gone(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """Our connection to the broker ended."""
        known = self._of(broker)
        if known is None:
            return
        known.connected, known.since_ms = False, now_ms
        self.look(broker, now_ms=now_ms)

    def on_doubt(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """The agent of ``broker`` vanished, or somebody says so: it has to answer soon."""
        known = self._known.get(broker)
        if known is not None and (known.doubted_ms or 0) <= (known.heard_ms or 0):
            known.doubted_ms = now_ms

    def overdue(self, *, now_ms: Millis) -> list[BrokerId]:
        """Brokers shown as they no longer are, because time went by; to be looked at."""
        return [
            id_
            for id_, known in self._known.items()
            if self.state(id_) in ("ready", "not_ready", "draining", "starting")
            and not self._answers(known, now_ms)
        ]

    def on_live(self, broker: BrokerId, page: LivePage, *, at_us: int, now_ms: Millis) -> None:
        """The agent of ``broker`` answered."""
        known = self._of(broker)
        if known is None:
            return
        known.rates = _rates(known, page, at_us)
        known.page, known.at_us, known.heard_ms = page, at_us, now_ms
        before, known.links = known.links, {}
        for link in page.links:
            if link.neighbour is not None and link.neighbour != broker:
                known.links[link.neighbour] = _better(known.links.get(link.neighbour), link)
        for other in (*before, *known.links):
            self._note_pair(broker, other)
        self.look(broker, now_ms=now_ms)

    def on_guide(self, guide: Guide, *, now_ms: Millis) -> None:
        """A guide came: what its agent knows of all brokers. An older one than ours is passed by,
        as is the word of an agent's Will.
        """
        newest = self.guide
        if guide.epoch == 0 and guide.number == 0 and newest is not None:
            return
        if newest is not None and (guide.epoch, guide.number) < (newest.epoch, newest.number):
            return
        if newest is None or guide.takeovers != newest.takeovers:
            self.version += 1
        self.guide = guide
        for told in guide.brokers:
            known = self._of(told.id)
            if known is not None and known.guided != told:
                known.guided = told
                self.look(told.id, now_ms=now_ms)

    # -- what is shown ---------------------------------------------------------------------------

    def look(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """Make the records of ``broker``, of its links and its neighbours anew, if they changed."""
        others = sorted(self._pairs.get(broker, ()))
        for each in (broker, *others):
            record = self._broker(each, now_ms)
            if self._brokers.get(each, (0, None))[1] != record:
                self.version += 1
                self._brokers[each] = self.version, record
        for other in others:
            self._look_at_link(_pair(broker, other), now_ms)

    def brokers(self) -> Iterator[BrokerId]:
        """All that are known, ascending."""
        yield from sorted(self._known)

    def age_ms(self, now_ms: Millis) -> Millis | None:
        """Since when no agent answered; ``None``: none ever did."""
        heard = [known.heard_ms for known in self._known.values() if known.heard_ms is not None]
        return Millis(now_ms - max(heard)) if heard else None

    def counts(self) -> dict[str, int]:
        """Brokers and links, and those that are down."""
        states = [record["state"] for _, record in self._brokers.values()]
        return {
            "brokers": len(states),
            "brokers_down": sum(state in ("down", "silent") for state in states),
            "links": len(self._links),
            "links_down": sum(not record["up"] for _, record in self._links.values()),
        }

    def neighbours(self, broker: BrokerId) -> list[BrokerId]:
        """With whom ``broker`` is linked, or was."""
        return sorted(self._pairs.get(broker, ()))

    def page(self, broker: BrokerId) -> LivePage | None:
        """What the agent of ``broker`` last said."""
        known = self._known.get(broker)
        return None if known is None else known.page

    def state(self, broker: BrokerId) -> State | None:
        """How ``broker`` is, as shown."""
        found = self._brokers.get(broker)
        return None if found is None else found[1]["state"]

    def records(self, since: int) -> Iterator[tuple[str, Record]]:
        """The records that changed after the version ``since``, with what each is about."""
        for broker, (number, record) in self._brokers.items():
            if number > since:
                yield f"b{broker}", record
        for (a, b), (number, record) in self._links.items():
            if number > since:
                yield f"l{a}-{b}", record

    def since(self, version: int, generation: int) -> Record:
        """What changed after ``version``; everything for who has seen another ``generation``."""
        whole = generation != self.generation
        seen = -1 if whole else version
        guide = self.guide
        return {
            "version": self.version,
            "generation": self.generation,
            "whole": whole,
            "brokers": [record for number, record in self._brokers.values() if number > seen],
            "links": [record for number, record in self._links.values() if number > seen],
            "controller": None if guide is None else guide.controller,
            "takeovers": [] if guide is None else [_takeover(each) for each in guide.takeovers],
        }

    # -- within ----------------------------------------------------------------------------------

    def _of(self, broker: BrokerId) -> _Known | None:
        known = self._known.get(broker)
        if known is None:
            if len(self._known) >= BROKERS_MAX:
                self.left_out += 1
                return None
            known = self._known[broker] = _Known()
        return known

    def _make_room(self) -> None:
        """Forget one broker of which others told, and with which we never had to do."""
        hearsay = (b for b, known in self._known.items() if not known.address and not known.page)
        id_ = next(hearsay, None)
        if id_ is None:
            return
        self.left_out += 1
        for other in self._pairs.pop(id_, ()):
            self._pairs[other].discard(id_)
            self._links.pop(_pair(id_, other), None)
        del self._known[id_]
        self._brokers.pop(id_, None)
        self.generation += 1
        self.version += 1

    def _note_pair(self, broker: BrokerId, other: BrokerId) -> None:
        if other in self._pairs.get(broker, ()):
            return
        if len(self._links) >= LINKS_MAX or self._of(other) is None:
            self.left_out += 1
            return
        self._pairs.setdefault(broker, set()).add(other)
        self._pairs.setdefault(other, set()).add(broker)

    def _broker(self, id_: BrokerId, now_ms: Millis) -> Record:
        known = self._known[id_]
        page, guided = known.page, known.guided
        state, why = self._judge(id_, known, now_ms)
        answers = state in ("ready", "not_ready", "draining")
        return {
            "id": id_,
            "name": sound_name(page.name) if page else self._name_by_others(id_),
            "state": state,
            "why": why,
            "address": known.address or (guided.address if guided else ""),
            "release": page.release if page else "",
            "standing": page.standing if page and answers else "",
            "clients": page.clients if page and answers else None,
            "core_of": page.core_of if page and answers else 0,
            "filters": page.filters if page and answers else None,
            "dropped": page.dropped if page and answers else None,
            "substitutes": list(guided.substitutes[:4]) if guided else [],
            **(known.rates if answers else {"published": None, "delivered": None}),
        }

    def _judge(self, id_: BrokerId, known: _Known, now_ms: Millis) -> tuple[State, str]:
        page = known.page
        if not known.connected:
            if any(self._says_up(other, id_, now_ms) for other in self._pairs.get(id_, ())):
                return "unreached", "its neighbours reach it, and we do not"
            if page is None and known.guided is not None and known.guided.state != "gone":
                return "unreached", "we have no connection to it"
            return "down", "neither we nor any neighbour reach it"
        if page is None or not self._answers(known, now_ms):
            if now_ms - known.since_ms < SILENT_AFTER_MS:
                return "starting", "its agent was just asked"
            return "silent", "its broker is there, its agent does not answer"
        if page.draining:
            return "draining", "its clients are being moved away"
        if not page.ready:
            return "not_ready", page.ready_reason
        return "ready", "; ".join(page.standing_reasons[:3])

    def _answers(self, known: _Known, now_ms: Millis) -> bool:
        """Whether what is known of an agent is of now."""
        heard, doubted = known.heard_ms, known.doubted_ms
        if not known.connected or heard is None or now_ms - heard >= SILENT_AFTER_MS:
            return False
        return doubted is None or heard > doubted or now_ms - doubted < DOUBTED_MS

    def _says_up(self, teller: BrokerId, about: BrokerId, now_ms: Millis) -> bool:
        known = self._known[teller]
        link = known.links.get(about)
        return link is not None and link.state == "up" and self._answers(known, now_ms)

    def _name_by_others(self, id_: BrokerId) -> str:
        return self._brokers[id_][1]["name"] if id_ in self._brokers else ""

    def _look_at_link(self, pair: Pair, now_ms: Millis) -> None:
        record = self._link(pair, now_ms)
        if record is None:
            for end, other in (pair, pair[::-1]):
                self._pairs[end].discard(other)
            if self._links.pop(pair, None) is not None:
                self.generation += 1
                self.version += 1
        elif self._links.get(pair, (0, None))[1] != record:
            self.version += 1
            self._links[pair] = self.version, record

    def _link(self, pair: Pair, now_ms: Millis) -> Record | None:
        """The record of a link; ``None`` when those who answer know of none any more."""
        ends = [self._known[end] for end in pair]
        answer = [self._answers(end, now_ms) for end in ends]
        told = [ends[n].links.get(pair[1 - n]) for n in (0, 1)]
        fresh = [link for link, answers in zip(told, answer, strict=True) if answers and link]
        if not fresh and all(answer):
            return None
        down = [link for link in fresh if link.state != "up"]
        up = bool(fresh) and not down
        known = [link for link in told if link is not None]
        reasons = [link.reason for link in down if link.reason]
        full = [link for link in fresh if link.load is not None]
        fullest = max(full, key=lambda link: link.load or 0, default=None)
        return {
            "a": pair[0],
            "b": pair[1],
            "up": up,
            "why": "" if up else (reasons[0] if reasons else "neither end answers"),
            "transport": max((link.transport for link in known), key=len, default=""),
            "delay_ms": min(
                (link.rtt_ms for link in fresh if up and link.rtt_ms is not None), default=None
            ),
            "rates": [
                _short(link.rate) if link and answers else None
                for link, answers in zip(told, answer, strict=True)
            ],
            "capacity": _short(fullest.capacity) if fullest and up else None,
            "load": round(fullest.load or 0, 3) if fullest and up else None,
        }


def _pair(a: BrokerId, b: BrokerId) -> Pair:
    return (a, b) if a < b else (b, a)


def _takeover(told: Takeover) -> Record:
    return {"broker": told.broker, "substitute": told.substitute}


def _better(one: LiveLink | None, other: LiveLink) -> LiveLink:
    """Of two connections to one neighbour, that which is up."""
    return one if one is not None and one.state == "up" else other


def _rates(known: _Known, page: LivePage, at_us: int) -> Record:
    """Publications per second since the agent's last answer."""
    published, delivered = None, None
    if known.page is not None:
        published, delivered = rates_between((known.page, known.at_us), (page, at_us))
    return {"published": _short(published), "delivered": _short(delivered)}


def rates_between(
    before: tuple[LivePage, int], after: tuple[LivePage, int]
) -> tuple[float | None, float | None]:
    """Publications per second, from clients and to them, between two answers of one agent.

    Each answer comes with its time by the agent's clock, in microseconds. Unknown if it began anew
    in between, or they are one.
    """
    (old, began_us), (new, ended_us) = before, after
    spent_s = (ended_us - began_us) / 1_000_000
    if old.epoch != new.epoch or spent_s <= 0:
        return None, None
    published, delivered = new.published - old.published, new.delivered - old.delivered
    return max(0, published) / spent_s, max(0, delivered) / spent_s


def _short(amount: float | None) -> float | None:
    """``amount`` to three digits: what nobody sees is no change."""
    if not amount:
        return amount
    return round(amount, 2 - floor(log10(amount)))
