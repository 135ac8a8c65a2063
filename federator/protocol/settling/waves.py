"""Detects when all brokers know that a filter is wanted here: by a wave and its echo.

A stone thrown into a pond makes a ripple; when the echoes of all shores are back, the ripple has
touched each. The **wave** follows the announcement over the same connections, so it arrives after
it. A broker forwards it to its other neighbours. It answers the neighbour that first sent it the
wave when all others have sent it the wave or an echo, and when it routes the filters itself and
receives matching publications from its own broker (the echo algorithm of Chang, 1982).

In a mesh that is not enough: the brokers between the asker and the core must have become members.
So a wave with a core first goes up from parent to parent, and each parent answers when it has the
filters from the child that asks.

A filter that is wanted over shortest paths is its destination record in a wave. An origin has one
wave under way at a time; questions that arrive meanwhile share the next.

Source: docs/protocol.md 14.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.control import WAVE_FILTERS_MAX, Echo, Wave
from federator.protocol.settling.routes import SettledRoutes
from federator.protocol.types import BrokerId, Epoch, Millis

TIMEOUT_MS: Final = Millis(2_000)
"""After this time a question is given up, and so is a wave of another origin."""

QUESTIONS_MAX: Final = 8_192
OPEN_BYTES_MAX: Final = 4_194_304
"""Bytes of all open questions; a quarter of it for one gateway."""
QUESTION_BYTES: Final = 64
"""The size of a question besides its filters."""

WAVES_MAX: Final = 1_024
WAVE_BYTES_MAX: Final = 65_536

POLL_MS: Final = Millis(20)
"""Between two checks for changes without a message to us, such as a SUBACK."""

BEGIN_GAP_MS: Final = Millis(5)
"""Least time between two walks through the waiting questions: there may be thousands."""
LOOKED_MAX: Final = 2_048
"""Filters checked in one such walk; those behind them come first in the next."""
LOOKED_PER_MS: Final = 100
"""A longer walk delays the next by a millisecond for so many filters."""


class Standing(Enum):
    """The state of a filter that our clients want."""

    UNHEARD = "we have not heard of it yet, or not said so"
    ANNOUNCED = "we have told the federation"
    NEEDLESS = "the federation need not know"


class SettlingContext(Protocol):
    """What settling needs of the rest of the agent. Filters have the form they have in waves."""

    def neighbours(self) -> Iterable[BrokerId]:
        """Neighbours with live links."""

    def send(self, neighbour: BrokerId, message: Wave | Echo) -> None:
        """Send ``message`` to a neighbour, after all control messages sent before."""

    def standing(self, filter: str) -> Standing:
        """The state of ``filter``, which our own clients want."""

    def is_routed(self, filter: str, to: BrokerId) -> bool:
        """Whether matching publications of our clients come to us, and go towards ``to``."""

    def answer(self, question: "Question", *, known: bool) -> None:
        """Send the answer to the gateway that asked."""


class Question(msgspec.Struct, frozen=True):
    """A gateway's question: are ``filters`` known everywhere? Answered with its ``token``."""

    gateway: str
    token: int
    filters: tuple[str, ...]
    until_ms: Millis
    signed: bool = False  # then the answer is signed, too


_Place = tuple[BrokerId, BrokerId | None]
"""The origin of a wave, and the core towards which it goes; ``None``: to all brokers."""

_Number = tuple[Epoch, int]


_Aimed = tuple[tuple[str, BrokerId], ...]
"""Filters, each with the broker that publications must reach: the origin, or the mesh's core."""


@dataclass(slots=True)
class _Wave:
    """A wave that is not answered by all yet."""

    number: _Number
    filters: _Aimed
    asker: BrokerId | None  # to be answered then; ``None``: the wave is ours
    until_ms: Millis
    answered: set[BrokerId] = field(default_factory=set)
    waiting: set[BrokerId] | None = None  # ``None`` until it was sent on

    @property
    def is_complete(self) -> bool:
        return self.waiting is not None and self.waiting <= self.answered


@dataclass(slots=True)
class _Own:
    """The questions of our wave under way: first up to each of ``cores``, then to all brokers."""

    number: _Number
    questions: list[Question]
    filters: _Aimed
    cores: list[BrokerId]
    parents: dict[BrokerId, BrokerId] = field(default_factory=dict)  # that were asked, by core


@dataclass(eq=False)
class Settling:
    """Answers the questions of our gateways, and forwards the waves of others."""

    self_id: BrokerId
    epoch: Epoch
    routes: SettledRoutes
    context: SettlingContext
    settled: int = 0  # questions answered with yes,
    gave_up: int = 0  # those that timed out or were refused,
    refused: int = 0  # and those refused for lack of room

    def __post_init__(self) -> None:
        self._open: Counter[str] = Counter()  # bytes of open questions, by gateway
        self._open_bytes = 0  # of all of them
        self._number = 0
        self._waiting: list[Question] = []
        self._begin_ms = Millis(0)
        self._own: _Own | None = None
        self._waves: dict[_Place, _Wave] = {}  # ours, and those of others
        self._answered: Recent[_Place, _Number] = Recent(WAVES_MAX)

    def renew(self, epoch: Epoch) -> None:
        """Number our waves within a newer epoch."""
        self.epoch = epoch

    def next_deadline_ms(self, now_ms: Millis) -> Millis | None:
        """When ``proceed`` is due; ``None``: not before an event."""
        if self._waiting and self._own is None:
            return Millis(max(now_ms + 1, self._begin_ms))
        busy = self._own is not None or self._waves
        return Millis(now_ms + POLL_MS) if busy else None

    def ask(self, question: Question, *, now_ms: Millis) -> None:
        """Answer ``question`` when its filters are known everywhere in reach, or on its timeout."""
        size, gateway = _size(question), question.gateway
        full = len(self._waiting) >= QUESTIONS_MAX or self._open_bytes + size > OPEN_BYTES_MAX
        self._open[gateway] += size
        self._open_bytes += size
        if full or size > WAVE_BYTES_MAX or self._open[gateway] > OPEN_BYTES_MAX // 4:
            self.refused += 1
            self._give_up([question])
            return
        self._waiting.append(question)
        # A wave under way is checked when it is due: checking it for each question would cost the
        # more, the more there are.
        while self._own is None and self._continue_wave(now_ms):
            pass

    def on_wave(self, wave: Wave, *, now_ms: Millis) -> None:
        """Handle a wave from a neighbour; ours comes back round a cycle: that need not answer."""
        self._take(wave, now_ms)
        self.proceed(now_ms=now_ms)

    def on_echo(self, echo: Echo, *, now_ms: Millis) -> None:
        """Handle a neighbour's answer to a wave that we sent."""
        wave = self._waves.get((echo.origin, echo.core))
        if wave is not None and wave.number == (echo.epoch, echo.number):
            wave.answered.add(echo.sender)
        self.proceed(now_ms=now_ms)

    def on_link_down(self, neighbour: BrokerId, *, now_ms: Millis) -> None:
        """Stop waiting for ``neighbour``, and drop waves that it sent: it can receive no answer."""
        for place, wave in list(self._waves.items()):
            if wave.asker is not None or place[1] is None:  # ours to a core begins again
                wave.answered.add(neighbour)
            if wave.asker == neighbour:
                del self._waves[place]
        self.proceed(now_ms=now_ms)

    def proceed(self, *, now_ms: Millis) -> None:
        """Continue every wave for which the awaited messages have come."""
        for place, wave in list(self._waves.items()):
            if wave.asker is None:
                continue
            if wave.until_ms <= now_ms:
                del self._waves[place]
            else:
                self._pass(place, wave, wave.asker)
        while self._continue_wave(now_ms):
            pass

    # Our own questions

    def _continue_wave(self, now_ms: Millis) -> bool:
        """Continue our own wave; return whether it ended."""
        if self._own is None:
            self._begin(now_ms)
        own = self._own
        if own is None:
            return False
        self._give_up([q for q in own.questions if q.until_ms <= now_ms])
        own.questions = [q for q in own.questions if q.until_ms > now_ms]
        if not own.questions or self._is_astray(own):
            self._end(own)
            self._waiting = own.questions + self._waiting
            return True
        for core in own.cores:
            parent = self.routes.parent_to(core)
            if parent is not None and core not in own.parents:
                own.parents[core] = parent
                meshed = tuple(aimed for aimed in own.filters if aimed[1] == core)
                self._start(own, core, meshed, {parent})
        waves = [self._waves.get((self.self_id, core)) for core in own.cores]
        if not all(wave is not None and wave.is_complete for wave in waves):
            return False
        if (last := self._waves.get((self.self_id, None))) is None:
            to = set(self.context.neighbours()) if own.filters else set[BrokerId]()
            last = self._start(own, None, own.filters, to)
        if not last.is_complete:
            return False
        self._end(own)
        self.settled += len(own.questions)
        for question in own.questions:
            self._answer(question, known=True)
        return True

    def _start(self, own: _Own, core: BrokerId | None, filters: _Aimed, to: set[BrokerId]) -> _Wave:
        wave = _Wave(own.number, filters, None, Millis(0), waiting=to)
        self._waves[self.self_id, core] = wave
        self._send_on((self.self_id, core), wave)
        return wave

    def _send_on(self, place: _Place, wave: _Wave) -> None:
        (origin, core), (epoch, number) = place, wave.number
        message = Wave(self.self_id, origin, epoch, number, core, wave.filters)
        for neighbour in sorted(wave.waiting or ()):
            self.context.send(neighbour, message)

    def _end(self, own: _Own) -> None:
        self._own = None
        for core in (None, *own.cores):
            self._waves.pop((self.self_id, core), None)

    def _is_astray(self, own: _Own) -> bool:
        """Whether cores or parents changed since the wave began, so that it must start again."""
        if any(self.routes.parent_to(core) != parent for core, parent in own.parents.items()):
            return True
        return any(self._aim(f) != to for f, to in own.filters)

    def _aim(self, filter: str) -> BrokerId:
        """The broker that publications matching ``filter`` must reach."""
        core = self.routes.core_of(filter)
        return self.self_id if core is None else core

    def _begin(self, now_ms: Millis) -> None:
        """Start a wave for the questions with filters that we have announced ourselves."""
        if not self._waiting or now_ms < self._begin_ms:
            return
        self._begin_ms = Millis(now_ms + BEGIN_GAP_MS)
        self._give_up([q for q in self._waiting if q.until_ms <= now_ms])
        waiting = [q for q in self._waiting if q.until_ms > now_ms]
        taken: list[Question] = []
        unheard: list[Question] = []
        filters: dict[str, None] = {}
        looked = size = passed = 0
        for question in waiting:
            looked += len(question.filters)
            if passed and looked > LOOKED_MAX:
                break
            standings = {f: self.context.standing(f) for f in question.filters}
            if Standing.UNHEARD in standings.values():
                unheard.append(question)  # the wave would overtake the announcement
                passed += 1
                continue
            more = [f for f, s in standings.items() if s is Standing.ANNOUNCED and f not in filters]
            size += sum(len(f.encode()) for f in more)
            if taken and (len(filters) + len(more) > WAVE_FILTERS_MAX or size > WAVE_BYTES_MAX):
                break
            filters.update(dict.fromkeys(more))
            taken.append(question)
            passed += 1
        self._begin_ms = Millis(self._begin_ms + looked // LOOKED_PER_MS)
        self._waiting = waiting[passed:] + unheard
        if not taken:
            return
        self._number += 1
        aimed = tuple((f, self._aim(f)) for f in filters)
        cores = sorted({to for _, to in aimed} - {self.self_id})
        self._own = _Own((self.epoch, self._number), taken, aimed, cores)

    def _give_up(self, questions: Iterable[Question]) -> None:
        for question in questions:
            self.gave_up += 1
            self._answer(question, known=False)

    def _answer(self, question: Question, *, known: bool) -> None:
        size = _size(question)
        self._open[question.gateway] -= size
        self._open_bytes -= size
        if not self._open[question.gateway]:
            del self._open[question.gateway]
        self.context.answer(question, known=known)

    # Others' waves

    def _take(self, wave: Wave, now_ms: Millis) -> None:
        place, number = (wave.origin, wave.core), (wave.epoch, wave.number)
        before = self._waves.get(place)
        if before is not None and number == before.number:
            # Ours that comes back from the way to its core says nothing: routes lead in a circle.
            if wave.core is None or before.asker is not None:
                before.answered.add(wave.sender)
            return
        if wave.origin == self.self_id or len(self._waves) >= WAVES_MAX:
            return
        if before is not None and number < before.number:
            return
        last = self._answered.get(place)
        if last is not None and number <= last:
            if number == last:  # a duplicate over a link that came up late
                echo = Echo(self.self_id, wave.origin, wave.epoch, wave.number, wave.core)
                self.context.send(wave.sender, echo)
            return
        until_ms = Millis(now_ms + TIMEOUT_MS)
        self._waves[place] = _Wave(number, wave.filters, wave.sender, until_ms)

    def _pass(self, place: _Place, wave: _Wave, asker: BrokerId) -> None:
        """Forward a wave once, and answer it when all is complete."""
        context, (origin, core), (epoch, number) = self.context, place, wave.number
        if wave.waiting is None:
            wave.waiting = self._beyond(core, wave.filters, asker)
            self._send_on(place, wave)
        if not wave.is_complete:
            return
        if core is None and not all(context.is_routed(f, to) for f, to in wave.filters):
            return
        del self._waves[place]
        self._answered.put(place, wave.number)
        context.send(asker, Echo(self.self_id, origin, epoch, number, core))

    def _beyond(
        self, core: BrokerId | None, filters: _Aimed, asker: BrokerId
    ) -> set[BrokerId] | None:
        """The neighbours to forward a wave to; ``None``: not yet."""
        if core is None:
            return set(self.context.neighbours()) - {asker}
        if not all(self.routes.has_child(core, asker, f) for f, _ in filters):
            return None
        if core == self.self_id:
            return set()
        parent = self.routes.parent_to(core)
        return None if parent is None else {parent}


def _size(question: Question) -> int:
    return QUESTION_BYTES + sum(len(filter.encode()) for filter in question.filters)
