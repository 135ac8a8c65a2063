"""Publications of ours that our own stand-ins received, to be published once more.

A broker distributes what **we** publish to all members, so our stand-in may get what was meant for
another member. It is then published again until a member gets it; a note about what we published
distinguishes it from what a client published here, which must go elsewhere.

The note contains topic and payload. If a client publishes the same at that moment the two may be
confused, which changes nothing: each of them is served once all the same. A note that is not used
(a member got the publication) is soon dropped. Letters that come back are handled likewise: those
in our own handwriting we post again.

Source: docs/protocol.md 12.
"""

import hashlib
from typing import Final

from federator.protocol.types import Millis

NOTES_MAX: Final = 65_536
NOTE_MS: Final = 2_000
"""A note is kept for at least this long, and at most twice as long."""

TRIES_MAX: Final = 64
"""A publication that came back so often goes to members elsewhere: there seem to be none here."""


def publication_name(topic: str, payload: bytes | memoryview) -> bytes:
    """A digest of topic and payload, the same for equal publications."""
    digest = hashlib.blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=12)
    digest.update(b"\0")
    digest.update(payload)
    return digest.digest()


class Returns:
    """Notes about what we published lately, at most ``notes_max`` twice over."""

    def __init__(self, *, notes_max: int = NOTES_MAX, note_ms: int = NOTE_MS) -> None:
        self._notes_max = notes_max
        self._note_ms = note_ms
        self._new: dict[bytes, list[int]] = {}
        self._old: dict[bytes, list[int]] = {}
        self._count = 0
        self._since_ms = Millis(0)

    def note(self, name: bytes, tries: int, *, now_ms: Millis) -> None:
        """Note that we publish this for the ``tries``-th time."""
        if self._count >= self._notes_max:
            self._turn_page(now_ms)
        self._forget(now_ms)
        self._new.setdefault(name, []).append(tries)
        self._count += 1

    def take(self, name: bytes, *, now_ms: Millis) -> int:
        """How often we published what now came back; 0 when it is not ours."""
        self._forget(now_ms)
        for page in (self._old, self._new):
            tries = page.get(name)
            if tries:
                last = tries.pop(0)
                if not tries:
                    del page[name]
                return last
        return 0

    def _forget(self, now_ms: Millis) -> None:
        """Drop notes that were not used."""
        if now_ms >= self._since_ms + 2 * self._note_ms:
            self._old = {}
            self._turn_page(now_ms)
            self._old = {}
        elif now_ms >= self._since_ms + self._note_ms:
            self._turn_page(now_ms)

    def _turn_page(self, now_ms: Millis) -> None:
        self._old, self._new = self._new, {}
        self._count = 0
        self._since_ms = now_ms
