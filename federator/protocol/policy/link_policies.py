"""Rules of links, where frames and letters about retained values cross them.

A frame's body is nobody's business on its way, so a link without rules is not touched. On one with
rules frames are opened, like a parcel at the customs, and publications that may not cross are
taken out. The label stays, for it still is that frame: of one under custody it crosses even when
nothing is left, or the receiver would ask for it again and again. So does a parcel that is to be
confirmed, or the origin would send it again and again.

What a letter asks for is not looked at: it is what is answered that matters.

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
    """The rules of all links of one agent, by neighbour and for others, at work on frames."""

    def __init__(
        self, rules: Mapping[BrokerId, LinkRules] | None = None, others: LinkRules | None = None
    ) -> None:
        self.withheld_in = 0  # publications that a neighbour sent and rules stopped
        self.withheld_out = 0  # publications that rules kept from a neighbour, one per neighbour
        self._filters: object = None
        self.follow(rules or {}, others or LinkRules())

    def follow(self, rules: Mapping[BrokerId, LinkRules], others: LinkRules) -> bool:
        """Go by these rules from now on; whether they are others than before."""
        filters = {id: each.filters for id, each in rules.items()}, others.filters
        if filters == self._filters:
            return False
        self._filters = filters
        self._rules, self._others = dict(rules), others
        self._lets_in: dict[LinkRules, _MayCross] = {}
        self._allows_export: dict[LinkRules, _MayCross] = {}
        for each in (*self._rules.values(), self._others):
            self._lets_in[each] = BoundedCache(in_text(each.allows_import))
            self._allows_export[each] = BoundedCache(in_text(each.allows_export))
        # Whether some link has rules that stop anything.
        self.active = not all(each.stops_nothing for each in self._lets_in)
        return True

    def rules_of(self, neighbour: BrokerId) -> LinkRules:
        return self._rules.get(neighbour, self._others)

    def outgoing(
        self, neighbour: BrokerId, frame: Frame, parts: Sequence[bytes | memoryview]
    ) -> Frame | None:
        """What of ``frame``, whose body is ``parts`` instead, may go to ``neighbour``.

        ``frame`` itself when all may, a copy with a shorter body, or ``None``: nothing.
        """
        rules = self.rules_of(neighbour)
        if rules.stops_nothing or not frame.publications:
            return frame
        sifted, withheld = _sift(frame, memoryview(b"".join(parts)), self._allows_export[rules])
        self.withheld_out += withheld
        return sifted

    def incoming(self, frame: Frame) -> Frame | None:
        """What of ``frame`` may come from its sender; see ``outgoing``."""
        rules = self.rules_of(frame.sender)
        if rules.stops_nothing or not frame.publications:
            return frame
        sifted, withheld = _sift(frame, frame.body, self._lets_in[rules])
        self.withheld_in += withheld
        return sifted


def _sift(frame: Frame, body: memoryview, may_cross: _MayCross) -> tuple[Frame | None, int]:
    """``frame`` without publications that may not cross, and how many those are.

    A body that cannot be read has none that may.
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
    """``letter`` without entries and values of topics that may not cross."""
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
