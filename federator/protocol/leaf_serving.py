"""Who serves a leaf that has two hubs: what the agents at both ends do about it.

The leaf chooses (``leaves.hub_choice``) and says so; the node makes of that what is to be paused
and proceeded with (``routing.serving``). Here it is done to what custody keeps, and noted: what was
decided last is on disk, so that after a restart nobody goes on where somebody else went on in the
meantime. Of a leaf the note's age says, to some seconds, until when its hub served it.

Source: docs/hubs.md; docs/protocol.md 20.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from federator.protocol.custody.custodian import Custodian
from federator.protocol.data.stamps import Stamps
from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.leaves.hub_choice import Choice, HubChoice
from federator.protocol.messages.serving import Served
from federator.protocol.node import Node
from federator.protocol.types import BrokerId, Millis, Now

TOUCH_GAP_MS: Final = 10_000
"""A gateway's disk is flash: a leaf that starts without its hub looks back so much further."""


class Note(Protocol):
    """What was decided last, on disk."""

    def read(self) -> tuple[Served | None, int]:
        """That, and when it was written or touched, by our wall clock; 0: there is none."""

    def write(self, served: Served) -> bool:
        """Keep this instead; whether it is written down."""

    def touch(self) -> None:
        """It holds still, now."""


class LeafServing:
    """At one agent: at a leaf with two hubs, or where a leaf hangs; nothing at any other.

    Args:
        handle: Gives our node an event.
        leaf: Which leaf hangs here, if any does.

    Attributes:
        choice: Of a leaf with two hubs.
        has_two_ways: Of a leaf: for a while it has another way than its hub, which has to know.
        on_roaming: Called when the leaf that hangs here is heard to have another hub.
    """

    def __init__(
        self,
        node: Node,
        custody: Custodian,
        stamps: Stamps,
        note: Note,
        handle: Callable[[HubChosen], None],
        *,
        leaf: BrokerId | None = None,
    ) -> None:
        self.choice: HubChoice | None = None
        self.has_two_ways = False
        self.on_roaming: Callable[[], None] = lambda: None
        self._node = node
        self._custody = custody
        self._stamps = stamps
        self._note = note
        self._handle = handle
        self._leaf = leaf
        self._known, self._noted_us = note.read()
        self._touched_ms = Millis(0)
        if leaf is not None and self._known is not None:
            self._resume(leaf, self._known)

    def choose_among(self, hubs: Sequence[BrokerId], now: Now, *, return_after_ms: int) -> None:
        """We are a leaf with these hubs, the preferred one first; none is known to be linked."""
        known = self._known
        self.choice = HubChoice(
            hubs,
            now,
            look_back_ms=self._node.parameters.hello_timeout_ms,
            return_after_ms=return_after_ms,
            missing_since_us=self._custody.missing_since_us,
            served_by=None if known is None else known.hub,
            served_since_us=0 if known is None else known.since_us,
            served_until_us=self._noted_us,
        )
        self._node.serving.wait(hubs)
        self._custody.hold(hubs)
        self._touched_ms = now.ms

    def start(self) -> None:
        """Begin with what an earlier life knew."""
        if self._leaf is not None and self._known is not None:
            self._roams()

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_time`` has something to do."""
        return None if self.choice is None else self.choice.next_deadline_ms()

    def on_neighbour(self, neighbour: BrokerId, up: bool, now: Now) -> None:
        """A link came up, or was lost."""
        if self.choice is None and up and self._tells_who_serves():
            # The one that is left waits to hear that it serves.
            self.choose_among((neighbour,), now, return_after_ms=0)
        if self.choice is not None:
            self._follow(self.choice, self.choice.on_link(neighbour, up, now))

    def prefer(self, hubs: Sequence[BrokerId], now: Now, *, return_after_ms: int) -> None:
        """Other hubs than before, or in another order, are to serve us; it may have been one."""
        if self.choice is not None:
            self.choice.prefer(hubs)
            return
        self.choose_among(hubs, now, return_after_ms=return_after_ms)
        for hub in self._node.links.up:
            self.on_neighbour(hub, True, now)

    def return_now(self, now: Now) -> None:
        """Whoever operates this leaf wants it to be served by the hub that it prefers, now."""
        if self.choice is not None:
            self._follow(self.choice, self.choice.return_now(now))

    def perform(self, effect: Pause | Proceed) -> None:
        """Exchange nothing with a broker, or exchange again, and remember it."""
        if isinstance(effect, Pause):
            self._custody.pause(effect.broker)
        else:
            self._custody.proceed(
                effect.broker,
                effect.since_us,
                by_its_clock=effect.by_its_clock,
                resumes=effect.resumes,
            )
        served = self._node.serving.served
        if self._leaf is not None:
            served = self._node.serving.of(self._leaf)
            self._roams()
        if served is not None and served != self._known and self._note.write(served):
            self._known = served

    def on_time(self, now: Now) -> None:
        """Choose, where there is a reason to, and note now and then that we are served."""
        if self.choice is None:
            return
        self._follow(self.choice, self.choice.on_time(now))
        noted = self._known == self._node.serving.served
        if self.choice.is_served and noted and now.ms >= self._touched_ms + TOUCH_GAP_MS:
            self._touched_ms = now.ms
            self._note.touch()

    # Inside

    def _tells_who_serves(self) -> bool:
        """A leaf with one hub that had two, or has two ways."""
        is_leaf = self._leaf is None and not self._node.parameters.transit
        return is_leaf and (self.has_two_ways or self._known is not None)

    def _resume(self, leaf: BrokerId, known: Served) -> None:
        self._node.serving.resume(leaf, known)
        if known.hub != self._node.links.self_id:
            self._custody.pause(leaf)
        else:
            self._custody.proceed(leaf, known.since_us, by_its_clock=True, resumes=True)

    def _roams(self) -> None:
        if not self._stamps.stamping:
            self._stamps.stamping = True
            self.on_roaming()

    def _follow(self, choosing: HubChoice, choice: Choice | None) -> None:
        if choice is not None:
            others, since_us = choosing.others, choice.since_us
            self._handle(HubChosen(choice.hub, others, since_us, choice.resumes))
