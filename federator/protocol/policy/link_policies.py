"""Rules of links, applied to frames and to letters about retained values.

Agents do not read a frame's body on its way, so links without rules forward it unread. On a link
with rules frames are opened, like a parcel at the customs, and publications that may not cross are
removed. The label stays, because it still is that frame: a frame under custody crosses even when
its body is empty, or the receiver would request it again and again. So does a parcel that is to be
confirmed, or the origin would resend it again and again.

Requests in letters are not checked: only the answers matter.

Source: docs/rules.md 1; docs/protocol.md 13.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from federator.errors import DecodeError
from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import topics_of
from federator.protocol.messages import control as c
from federator.protocol.messages.group_records import is_inbox_key
from federator.protocol.policy.rules import LinkRules, in_text
from federator.protocol.sharing.parcels import PARCEL_HEADER_BYTES, Confirmation, unpack_parcel
from federator.protocol.types import BrokerId

_MayCross = Callable[[bytes], bool]


class LinkPolicies:
    """Applies the rules of all links of one agent, by neighbour and for others, to frames."""

    def __init__(
        self, rules: Mapping[BrokerId, LinkRules] | None = None, others: LinkRules | None = None
    ) -> None:
        self.withheld_in = 0  # publications from a neighbour that rules stopped
        self.withheld_out = 0  # publications that rules kept from a neighbour, one per neighbour
        self._filters: object = None
        self.follow(rules or {}, others or LinkRules())

    def follow(self, rules: Mapping[BrokerId, LinkRules], others: LinkRules) -> bool:
        """Use these rules from now on; return whether they changed."""
        filters = {id: link.filters for id, link in rules.items()}, others.filters
        if filters == self._filters:
            return False
        self._filters = filters
        self._rules, self._others = dict(rules), others
        self._lets_in: dict[LinkRules, _MayCross] = {}
        self._allows_export: dict[LinkRules, _MayCross] = {}
        for link in (*self._rules.values(), self._others):
            self._lets_in[link] = BoundedCache(in_text(link.allows_import))
            self._allows_export[link] = BoundedCache(in_text(link.allows_export))
        # Whether the rules of some link stop anything.
        self.active = not all(link.stops_nothing for link in self._lets_in)
        return True

    def rules_of(self, neighbour: BrokerId) -> LinkRules:
        return self._rules.get(neighbour, self._others)

    def outgoing(
        self, neighbour: BrokerId, frame: Frame, parts: Sequence[bytes | memoryview]
    ) -> Frame | None:
        """The part of ``frame``, with its body replaced by ``parts``, that may go to ``neighbour``.

        ``frame`` itself when all may, a copy with a shorter body, or ``None``: nothing.
        """
        rules = self.rules_of(neighbour)
        if rules.stops_nothing or not frame.publications:
            return frame
        sifted, withheld = _sift(frame, memoryview(b"".join(parts)), self._allows_export[rules])
        self.withheld_out += withheld
        return sifted

    def incoming(self, frame: Frame) -> Frame | None:
        """The part of ``frame`` that may come from its sender; see ``outgoing``."""
        rules = self.rules_of(frame.sender)
        if rules.stops_nothing or not frame.publications:
            return frame
        sifted, withheld = _sift(frame, frame.body, self._lets_in[rules])
        self.withheld_in += withheld
        return sifted


def _sift(frame: Frame, body: memoryview, may_cross: _MayCross) -> tuple[Frame | None, int]:
    """Remove publications that may not cross from ``frame``, and count them.

    If a body cannot be read, none may cross.
    """
    head, missed = 0, frame.flags != 0
    try:
        if is_inbox_key(frame.keys):
            parcel = unpack_parcel(body)
            if isinstance(parcel, Confirmation):
                return frame, 0
            head, missed = PARCEL_HEADER_BYTES, parcel.number > 0
        run = body[head:]
        packets = topics_of(run)
    except DecodeError:
        return None, frame.publications
    kept = [run[start:end] for start, end, topic in packets if may_cross(topic)]
    withheld = len(packets) - len(kept)
    if not withheld:
        return frame, 0
    if not kept and not missed:
        return None, withheld
    sifted = memoryview(b"".join((body[:head], *kept)))
    count = len(kept) or (1 if head else 0)  # a frame without flags has at least 1
    return msgspec.structs.replace(frame, publications=count, body=sifted), withheld


def sift(letter: c.RetainedLetter, may_cross: Callable[[str], bool]) -> c.RetainedLetter:
    """Remove entries and values of topics that may not cross from ``letter``."""
    body = letter.body
    replace = msgspec.structs.replace
    match body:
        case c.RetainedPage() | c.RetainedNews():
            entries = tuple(entry for entry in body.entries if may_cross(entry.topic))
            if len(entries) == len(body.entries):
                return letter
            return replace(letter, body=replace(body, entries=entries))
        case c.RetainedValues():
            pairs = zip(body.entries, body.packets, strict=False)
            kept = [(entry, packet) for entry, packet in pairs if may_cross(entry.topic)]
            if len(kept) == len(body.entries):
                return letter
            entries, packets = tuple(e for e, _ in kept), tuple(p for _, p in kept)
            return replace(letter, body=replace(body, entries=entries, packets=packets))
        case _:
            return letter
