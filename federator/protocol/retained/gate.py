"""Rules of links, where letters about retained values cross them.

As with frames, what may not cross is taken out and the rest goes on. What is asked for is not
looked at: it is what is answered that matters.

Source: docs/rules.md; docs/protocol.md, section 13.
"""

from collections.abc import Callable

import msgspec

from federator.protocol.messages import (
    RetainedLetter,
    RetainedNews,
    RetainedPage,
    RetainedValues,
)


def sift(letter: RetainedLetter, may_cross: Callable[[str], bool]) -> RetainedLetter:
    """``letter`` without entries and values of topics that may not cross."""
    body = letter.body
    replace = msgspec.structs.replace
    match body:
        case RetainedPage() | RetainedNews():
            entries = tuple(entry for entry in body.entries if may_cross(entry.topic))
            if len(entries) == len(body.entries):
                return letter
            return replace(letter, body=replace(body, entries=entries))
        case RetainedValues():
            pairs = zip(body.entries, body.packets, strict=False)
            kept = [(entry, packet) for entry, packet in pairs if may_cross(entry.topic)]
            if len(kept) == len(body.entries):
                return letter
            entries, packets = tuple(e for e, _ in kept), tuple(p for _, p in kept)
            return replace(letter, body=replace(body, entries=entries, packets=packets))
        case _:
            return letter
