"""Which hub serves a leaf that has two: what the agents at both ends do about it.

The leaf chooses (``leaves.hub_choice``) and announces its choice; the node derives what is to be
paused and proceeded with (``leaves.serving``). Here that is applied to custody, and noted: the
last decision is on disk, so that after a restart an agent does not continue where another one did
in the meantime. At a leaf, the age of the note shows, to some seconds, until when its hub served
it.

Source: docs/hubs.md; docs/protocol.md 20.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from federator.protocol.custody.custodian import Custodian
from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.leaves.hub_choice import HubChoice
from federator.protocol.leaves.serving import Serving
from federator.protocol.leaves.stamps import Stamps
from federator.protocol.links.links import Links
from federator.protocol.messages.serving import Served
from federator.protocol.types import BrokerId, Millis, Now

TOUCH_GAP_MS: Final = 10_000
"""A gateway's disk is flash, so we write seldom; after a restart a leaf looks back further."""


class Note(Protocol):
    """The last decision, on disk."""

    def read(self) -> tuple[Served | None, int]:
        """The decision, and when it was written or touched, by our wall clock; 0: there is none."""

    def write(self, served: Served) -> bool:
        """Write another decision; return whether it is written."""

    def touch(self) -> None:
        """Record that the decision is still valid."""


class LeafServing:
    """Serves one agent: a leaf with two hubs, or the agent at which a leaf hangs; idle elsewhere.

    Args:
        links, serving: Those of our node.
        handle: Passes an event to our node.
        leaf: The leaf that hangs here, if there is one.
        has_two_ways: At a leaf: for a while it has a second way beside its hub, and announces
            which one serves it.
        on_roaming: Called when the leaf that hangs here announces another hub.

    Attributes:
        choice: At a leaf with two hubs.
    """

    def __init__(
        self,
        links: Links,
        serving: Serving,
        custody: Custodian,
        stamps: Stamps,
        note: Note,
        handle: Callable[[HubChosen], None],
        *,
        leaf: BrokerId | None = None,
        has_two_ways: bool = False,
        on_roaming: Callable[[], None] = lambda: None,
    ) -> None:
        self.choice: HubChoice | None = None
        self.has_two_ways = has_two_ways
        self._on_roaming = on_roaming
        self._links = links
        self._serving = serving
        self._custody = custody
        self._stamps = stamps
        self._note = note
        self._handle = handle
        self._leaf = leaf
        self._noted, self._noted_us = note.read()
        self._touched_ms = Millis(0)
        if leaf is not None and self._noted is not None:
            self._resume(leaf, self._noted)

    def choose_among(self, hubs: Sequence[BrokerId], now: Now, *, return_after_ms: int) -> None:
        """Choose among the hubs of this leaf, the preferred one first; assume no link yet."""
        served = self._noted
        self.choice = HubChoice(
            hubs,
            now,
            look_back_ms=self._links.parameters.hello_timeout_ms,
            return_after_ms=return_after_ms,
            missing_since_us=self._custody.missing_since_us,
            served_by=None if served is None else served.hub,
            served_since_us=0 if served is None else served.since_us,
            served_until_us=self._noted_us,
        )
        self._serving.wait(hubs)
        self._custody.hold(hubs)
        self._touched_ms = now.ms

    def start(self) -> None:
        """Apply what the note of an earlier run says."""
        if self._leaf is not None and self._noted is not None:
            self._roams()

    def next_deadline_ms(self) -> Millis | None:
        return None if self.choice is None else self.choice.next_deadline_ms()

    def on_neighbour(self, neighbour: BrokerId, up: bool, now: Now) -> None:
        """A link came up, or was lost."""
        if self.choice is None and up and self._announces_serving_hub():
            # The remaining hub waits for the announcement that it serves.
            self.choose_among((neighbour,), now, return_after_ms=0)
        if self.choice is not None:
            self._follow(self.choice.on_link(neighbour, up, now))

    def prefer(self, hubs: Sequence[BrokerId], now: Now, *, return_after_ms: int) -> None:
        """Set other hubs, or another order of hubs; there may have been only one before."""
        if self.choice is not None:
            self.choice.prefer(hubs)
            return
        self.choose_among(hubs, now, return_after_ms=return_after_ms)
        for hub in self._links.up:
            self.on_neighbour(hub, True, now)

    def return_now(self, now: Now) -> None:
        """Return to the preferred hub now, by order of the operator."""
        if self.choice is not None:
            self._follow(self.choice.return_now(now))

    def perform(self, effect: Pause | Proceed) -> None:
        """Stop or resume the exchange with a broker, and note the decision."""
        if isinstance(effect, Pause):
            self._custody.pause(effect.broker)
        else:
            self._custody.proceed(
                effect.broker,
                effect.since_us,
                by_its_clock=effect.by_its_clock,
                resumes=effect.resumes,
            )
        served = self._serving.served
        if self._leaf is not None:
            served = self._serving.of(self._leaf)
            self._roams()
        if served is not None and served != self._noted and self._note.write(served):
            self._noted = served

    def on_time(self, now: Now) -> None:
        """Reconsider the choice if it is due, and touch the note now and then while served."""
        if self.choice is None:
            return
        self._follow(self.choice.on_time(now))
        noted = self._noted == self._serving.served
        if self.choice.is_served and noted and now.ms >= self._touched_ms + TOUCH_GAP_MS:
            self._touched_ms = now.ms
            self._note.touch()

    # Inside

    def _announces_serving_hub(self) -> bool:
        """Whether this is a leaf with one hub that had two, or has two ways."""
        is_leaf = self._leaf is None and not self._links.parameters.transit
        return is_leaf and (self.has_two_ways or self._noted is not None)

    def _resume(self, leaf: BrokerId, served: Served) -> None:
        self._serving.resume(leaf, served)
        if served.hub != self._links.self_id:
            self._custody.pause(leaf)
        else:
            self._custody.proceed(leaf, served.since_us, by_its_clock=True, resumes=True)

    def _roams(self) -> None:
        if not self._stamps.stamping:
            self._stamps.stamping = True
            self._on_roaming()

    def _follow(self, chosen: HubChosen | None) -> None:
        if chosen is not None:
            self._handle(chosen)
