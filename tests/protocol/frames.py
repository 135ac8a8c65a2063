"""A frame for tests that say only what matters of it."""

from typing import Any

from federator.protocol.forwarding.frames import KEY_BYTES, Frame


def made_frame(*, origin: int = 1, body: bytes | memoryview = b"", **fields: Any) -> Frame:
    """One of ``origin``, as it leaves there with one publication on one filter."""
    usual = {
        "flags": 0,
        "hops": 0,
        "hop_limit": 9,
        "sender": origin,
        "epoch": 1,
        "seq": 1,
        "origin_time_us": 0,
        "publications": 1,
        "keys": bytes(KEY_BYTES),
        "mask": 1,
    }
    return Frame(origin=origin, body=memoryview(body), **usual | fields)
