"""What a console shows of a federation: brokers and links, from agents' answers and what we see.

Each broker and link has a record, and each record the number of the change that made it. A viewer
sends the last number it has seen, and gets what changed since: a slow one misses states in between,
and nothing is queued for it.

A broker is down when we cannot reach it and no neighbour reports that its link to it is up. If one
does, only our own connection is broken. A link has two ends, and is up when no end that answers
says otherwise.

Source: docs/console.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any, Final, Literal, TypeVar

from federator.console.answers import read_answer
from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.broker_names import sound_name
from federator.protocol.messages.guide import Guide, GuideBroker, Takeover
from federator.protocol.telemetry.agent_status import LinkStatus, LivePage
from federator.protocol.types import BrokerId, Millis

SILENT_AFTER_MS: Final = 6_000
"""Without an answer for so long an agent is silent,"""
DOUBTED_MS: Final = 1_500
"""or for so long after its broker reported that it vanished."""

BROKERS_MAX: Final = 1_024
LINKS_MAX: Final = 16_384
"""Limits of records; further ones are counted in ``Picture.left_out``."""

State = Literal["ready", "not_ready", "draining", "starting", "silent", "unreached", "down"]
Pair = tuple[BrokerId, BrokerId]
Record = dict[str, Any]
_Key = TypeVar("_Key", BrokerId, Pair)


def read_live(body: Mapping[str, Any]) -> LivePage:
    """Decode the page in an answer.

    Raises:
        DecodeError: The answer is malformed.
    """
    return read_answer(LivePage, body, called="page live")


@dataclass(slots=True)
class _AgentState:
    """What is known of one broker."""

    connected: bool = False
    since_ms: Millis = Millis(0)  # since when ``connected`` has its value
    heard_ms: Millis | None = None  # when its agent last answered
    at_us: int = 0  # that answer's time, by the agent's clock
    page: LivePage | None = None
    rates: Record = field(default_factory=dict)
    doubted_ms: Millis | None = None  # when its broker last reported that its agent vanished
    guided: GuideBroker | None = None
    address: str = ""
    links: dict[BrokerId, LinkStatus] = field(default_factory=dict)


class Picture:
    """Brokers and links as they are shown.

    Attributes:
        version: The number of the newest change.
        generation: Counts removals: a viewer that has seen another one gets everything.
    """

    def __init__(self) -> None:
        self.version = 0
        self.generation = 1
        self.left_out = 0
        self.guide: Guide | None = None
        self._agents: dict[BrokerId, _AgentState] = {}
        self._pairs: dict[BrokerId, set[BrokerId]] = {}
        self._brokers: dict[BrokerId, tuple[int, Record]] = {}
        self._links: dict[Pair, tuple[int, Record]] = {}
        # What records were when changes were last read.
        self._before: dict[BrokerId | Pair, Record | None] = {}
        # The last records of brokers and links that are shown no longer.
        self._former: Recent[BrokerId | Pair, Record] = Recent(LINKS_MAX)

    # -- input -----------------------------------------------------------------------------------

    def on_connected(self, broker: BrokerId, url: str, *, now_ms: Millis) -> None:
        """Note that we are connected to the broker at ``url``, and may ask its agent.

        It takes precedence over brokers that we know only from others.
        """
        if broker not in self._agents and len(self._agents) >= BROKERS_MAX:
            self._make_room()
        entry = self._of(broker)
        if entry is None:
            return
        entry.connected, entry.since_ms, entry.address = True, now_ms, url
        self.look(broker, now_ms=now_ms)

    def on_gone(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """Note that our connection to the broker ended."""
        entry = self._of(broker)
        if entry is None:
            return
        entry.connected, entry.since_ms = False, now_ms
        self.look(broker, now_ms=now_ms)

    def on_doubt(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """Note a report, perhaps false, that the agent of ``broker`` is gone: it must answer."""
        entry = self._agents.get(broker)
        if entry is not None and (entry.doubted_ms or 0) <= (entry.heard_ms or 0):
            entry.doubted_ms = now_ms

    def overdue(self, *, now_ms: Millis) -> list[BrokerId]:
        """Brokers with an outdated shown state, to be updated."""
        return [
            id_
            for id_, entry in self._agents.items()
            if self.state(id_) in ("ready", "not_ready", "draining", "starting")
            and not self._answers(entry, now_ms)
        ]

    def on_live(self, broker: BrokerId, page: LivePage, *, at_us: int, now_ms: Millis) -> None:
        """Handle an answer of the agent of ``broker``."""
        entry = self._of(broker)
        if entry is None:
            return
        entry.rates = _rates(entry, page, at_us)
        entry.page, entry.at_us, entry.heard_ms = page, at_us, now_ms
        before, entry.links = entry.links, {}
        for link in page.links:
            if link.neighbour is not None and link.neighbour != broker:
                entry.links[link.neighbour] = _better(entry.links.get(link.neighbour), link)
        for other in (*before, *entry.links):
            self._note_pair(broker, other)
        self.look(broker, now_ms=now_ms)

    def on_guide(self, guide: Guide, *, now_ms: Millis) -> None:
        """Handle a guide: what its agent knows about all brokers. A guide older than ours is
        ignored, as is an agent's Will."""
        newest = self.guide
        if guide.epoch == 0 and guide.number == 0 and newest is not None:
            return
        if newest is not None and (guide.epoch, guide.number) < (newest.epoch, newest.number):
            return
        if newest is None or guide.takeovers != newest.takeovers:
            self.version += 1
        self.guide = guide
        for listed in guide.brokers:
            entry = self._of(listed.id)
            if entry is not None and entry.guided != listed:
                entry.guided = listed
                self.look(listed.id, now_ms=now_ms)

    # -- output ----------------------------------------------------------------------------------

    def look(self, broker: BrokerId, *, now_ms: Millis) -> None:
        """Update the records of ``broker``, of its links and its neighbours, if they changed."""
        others = sorted(self._pairs.get(broker, ()))
        for id_ in (broker, *others):
            self._show(self._brokers, id_, self._broker(id_, now_ms))
        for other in others:
            self._look_at_link(_pair(broker, other), now_ms)

    def brokers(self) -> Iterator[BrokerId]:
        """All known brokers, ascending."""
        yield from sorted(self._agents)

    def age_ms(self, now_ms: Millis) -> Millis | None:
        """Time since any agent last answered; ``None`` if none ever did."""
        answered_ms = [
            entry.heard_ms for entry in self._agents.values() if entry.heard_ms is not None
        ]
        return Millis(now_ms - max(answered_ms)) if answered_ms else None

    def counts(self) -> dict[str, int]:
        """Numbers of brokers and links, and of those that are down."""
        states = [record["state"] for _, record in self._brokers.values()]
        return {
            "brokers": len(states),
            "brokers_down": sum(state in ("down", "silent") for state in states),
            "links": len(self._links),
            "links_down": sum(not record["up"] for _, record in self._links.values()),
        }

    def neighbours(self, broker: BrokerId) -> list[BrokerId]:
        """The brokers that are, or were, linked with ``broker``."""
        return sorted(self._pairs.get(broker, ()))

    def page(self, broker: BrokerId) -> LivePage | None:
        """The last answer of the agent of ``broker``."""
        entry = self._agents.get(broker)
        return None if entry is None else entry.page

    def state(self, broker: BrokerId) -> State | None:
        """The state of ``broker``, as shown."""
        numbered = self._brokers.get(broker)
        return None if numbered is None else numbered[1]["state"]

    def changes(self) -> Iterator[tuple[Record | None, Record]]:
        """Each record that changed since the last call, behind the one of then."""
        changed, self._before = self._before, {}
        for key, before in changed.items():
            shown = self._links.get(key) if isinstance(key, tuple) else self._brokers.get(key)
            if shown is not None:
                yield before, shown[1]

    def since(self, version: int, generation: int) -> Record:
        """What changed after ``version``; everything if the viewer saw another ``generation``."""
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
            "takeovers": []
            if guide is None
            else [_takeover(takeover) for takeover in guide.takeovers],
        }

    # -- internal --------------------------------------------------------------------------------

    def _show(self, shown: dict[_Key, tuple[int, Record]], key: _Key, record: Record) -> None:
        """Replace the record of ``key`` if it changed."""
        _, now = shown.get(key, (0, None))
        if now != record:
            before = self._former.pop(key, None) if now is None else now
            self.version += 1
            shown[key] = self.version, record
            self._before.setdefault(key, before)

    def _remove(self, shown: dict[_Key, tuple[int, Record]], key: _Key) -> bool:
        """Show ``key`` no longer; whether it was shown."""
        numbered = shown.pop(key, None)
        if numbered is not None:
            self._former.put(key, numbered[1])
        return numbered is not None

    def _of(self, broker: BrokerId) -> _AgentState | None:
        entry = self._agents.get(broker)
        if entry is None:
            if len(self._agents) >= BROKERS_MAX:
                self.left_out += 1
                return None
            entry = self._agents[broker] = _AgentState()
        return entry

    def _make_room(self) -> None:
        """Forget one broker that we know only from others."""
        hearsay = (b for b, entry in self._agents.items() if not entry.address and not entry.page)
        id_ = next(hearsay, None)
        if id_ is None:
            return
        self.left_out += 1
        for other in self._pairs.pop(id_, ()):
            self._pairs[other].discard(id_)
            self._remove(self._links, _pair(id_, other))
        del self._agents[id_]
        self._remove(self._brokers, id_)
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
        entry = self._agents[id_]
        page, guided = entry.page, entry.guided
        state, why = self._state_of(id_, entry, now_ms)
        answers = state in ("ready", "not_ready", "draining")
        return {
            "id": id_,
            "name": sound_name(page.name) if page else self._name_by_others(id_),
            "state": state,
            "why": why,
            "address": entry.address or (guided.address if guided else ""),
            "release": page.release if page else "",
            "standing": page.standing if page and answers else "",
            "clients": page.clients if page and answers else None,
            "core_of": page.core_of if page and answers else 0,
            "filters": page.filters if page and answers else None,
            "dropped": page.dropped if page and answers else None,
            "substitutes": list(guided.substitutes[:4]) if guided else [],
            **(entry.rates if answers else {"published": None, "delivered": None}),
        }

    def _state_of(self, id_: BrokerId, known: _AgentState, now_ms: Millis) -> tuple[State, str]:
        page = known.page
        if not known.connected:
            if any(self._reports_up(other, id_, now_ms) for other in self._pairs.get(id_, ())):
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

    def _answers(self, known: _AgentState, now_ms: Millis) -> bool:
        """Whether the agent's last answer is still current."""
        answered_ms, doubted_ms = known.heard_ms, known.doubted_ms
        if not known.connected or answered_ms is None or now_ms - answered_ms >= SILENT_AFTER_MS:
            return False
        return doubted_ms is None or answered_ms > doubted_ms or now_ms - doubted_ms < DOUBTED_MS

    def _reports_up(self, teller: BrokerId, about: BrokerId, now_ms: Millis) -> bool:
        entry = self._agents[teller]
        link = entry.links.get(about)
        return link is not None and link.state == "up" and self._answers(entry, now_ms)

    def _name_by_others(self, id_: BrokerId) -> str:
        return self._brokers[id_][1]["name"] if id_ in self._brokers else ""

    def _look_at_link(self, pair: Pair, now_ms: Millis) -> None:
        record = self._link(pair, now_ms)
        if record is None:
            for end, other in (pair, pair[::-1]):
                self._pairs[end].discard(other)
            if self._remove(self._links, pair):
                self.generation += 1
                self.version += 1
        else:
            self._show(self._links, pair, record)

    def _link(self, pair: Pair, now_ms: Millis) -> Record | None:
        """The record of a link; ``None`` if both ends answer and neither knows the link."""
        ends = [self._agents[end] for end in pair]
        answer = [self._answers(end, now_ms) for end in ends]
        reported = [ends[n].links.get(pair[1 - n]) for n in (0, 1)]
        fresh = [link for link, answers in zip(reported, answer, strict=True) if answers and link]
        if not fresh and all(answer):
            return None
        down = [link for link in fresh if link.state != "up"]
        up = bool(fresh) and not down
        links = [link for link in reported if link is not None]
        reasons = [link.reason for link in down if link.reason]
        full = [link for link in fresh if link.load is not None]
        fullest = max(full, key=lambda link: link.load or 0, default=None)
        return {
            "a": pair[0],
            "b": pair[1],
            "up": up,
            "why": "" if up else (reasons[0] if reasons else "neither end answers"),
            "transport": max((link.transport for link in links), key=len, default=""),
            "delay_ms": min(
                (link.rtt_ms for link in fresh if up and link.rtt_ms is not None), default=None
            ),
            "rates": [
                _short(link.rate) if link and answers else None
                for link, answers in zip(reported, answer, strict=True)
            ],
            "capacity": _short(fullest.capacity) if fullest and up else None,
            "load": round(fullest.load or 0, 3) if fullest and up else None,
        }


def _pair(a: BrokerId, b: BrokerId) -> Pair:
    return (a, b) if a < b else (b, a)


def _takeover(takeover: Takeover) -> Record:
    return {"broker": takeover.broker, "substitute": takeover.substitute}


def _better(one: LinkStatus | None, other: LinkStatus) -> LinkStatus:
    """Of two connections to one neighbour, the one that is up."""
    return one if one is not None and one.state == "up" else other


def _rates(agent: _AgentState, page: LivePage, at_us: int) -> Record:
    """Publications per second, from clients and to them, since the agent's last answer.

    Each answer comes with its time by the agent's clock. Unknown if there is no earlier answer, the
    agent restarted in between, or the answers have the same time.
    """
    before, spent_s = agent.page, (at_us - agent.at_us) / 1_000_000
    if before is None or before.epoch != page.epoch or spent_s <= 0:
        return {"published": None, "delivered": None}
    return {
        "published": _short(max(0, page.published - before.published) / spent_s),
        "delivered": _short(max(0, page.delivered - before.delivered) / spent_s),
    }


def _short(amount: float | None) -> float | None:
    """Round ``amount`` to three digits: smaller differences are no change."""
    if not amount:
        return amount
    return round(amount, 2 - floor(log10(amount)))
