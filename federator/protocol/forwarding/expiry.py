"""Message expiry across the federation: waiting here counts as it does on a broker.

A broker counts a publication's expiry interval down while it holds the publication, and sends the
rest with it. Frames are forwarded unread, so no broker counts the time between two brokers. On a
live link that is milliseconds, and MQTT counts in whole seconds; in a log it can be minutes. An
agent that lets frames wait for long measures that wait **on its own clock** and subtracts it here.
Two clocks are never compared: an hour of skew would make every publication of a broker expire, or
none.

Seconds are counted as brokers count them: a wait of 1.9 s subtracts 1. A publication with nothing
left is not delivered.

Source: OASIS MQTT 5.0, section 3.3.2.3.3; docs/guarantees.md, "Message expiry".
"""

from collections.abc import Iterable

from federator.protocol.forwarding.publications import (
    EXPIRY,
    FIXED_BYTES,
    LENGTHS,
    Place,
    read_variable_byte_integer,
)

_EXPIRY_BYTES = FIXED_BYTES[EXPIRY]


def age_expiry(run: bytearray, places: Iterable[Place], *, age_s: int) -> list[Place]:
    """Subtract ``age_s`` from every expiry interval in ``run``, in place.

    Args:
        run: PUBLISH packets as ``RunChecker`` accepted them; every packet keeps its length.
        age_s: Whole seconds that they waited, by the clock of one machine; a negative value (that
            clock was set back) counts as 0.

    Returns:
        The places of the packets that did not expire, in order.
    """
    if age_s <= 0:
        return list(places)
    alive = []
    for place in places:
        _, end, id_at, qos = place
        at = _expiry_at(run, id_at + 2 if qos else id_at, end)
        if at is not None:
            left_s = int.from_bytes(run[at : at + _EXPIRY_BYTES], "big") - age_s
            if left_s <= 0:
                continue
            run[at : at + _EXPIRY_BYTES] = left_s.to_bytes(_EXPIRY_BYTES, "big")
        alive.append(place)
    return alive


def _expiry_at(run: bytearray, at: int, packet_end: int) -> int | None:
    """The position of the expiry interval in the properties that begin at ``at``, if any."""
    if not run[at]:
        return None
    length, at = read_variable_byte_integer(run, at)
    end = at + length
    assert end <= packet_end, "the run was not checked"
    while at < end:
        kind = run[at]
        at += 1
        if kind == EXPIRY:
            return at
        if kind in FIXED_BYTES:
            at += FIXED_BYTES[kind]
        else:
            for _ in range(LENGTHS[kind]):
                at += 2 + (run[at] << 8 | run[at + 1])
    return None
