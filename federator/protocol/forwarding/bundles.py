"""Several frames of one origin in one PUBLISH, and the order of their packets.

A frame holds publications of one route and one kind (QoS 0, or QoS 1 and 2). When a publisher
alternates between two topics with two routes, one read of the origin becomes two frames, and the
order between them would be lost. A bundle keeps it: beside the frames it lists from which of them
the next packets come, as a list of *runs*. Each frame is unchanged, with a number, keys and chains
of its own: an agent that forwards only some of them lists the runs of these.

Neighbours that do not know bundles get the frames one by one.

Layout, big-endian: version, number of frames, number of runs; the length of each frame; for each
run the frame and the number of packets; the frames. No runs: each frame is one run.

Source: docs/protocol.md section 8.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from federator.errors import DecodeError
from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame, unpack
from federator.protocol.forwarding.publications import read_variable_byte_integer

BUNDLE_VERSION: Final = 3
"""Takes the place of a frame's version."""

FRAMES_MAX: Final = 1_024
RUNS_MAX: Final = 8_192
"""How much one turn of the loop handles at most."""

RUN_MAX: Final = 65_535

_HEADER = struct.Struct(">BHI")

Run = tuple[int, int]
"""The position of a frame, and how many of its packets come next."""


def runs_of(frames: Sequence[Frame]) -> Sequence[Run]:
    """The order of the packets of ``frames``, which are all or some of one bundle.

    A run names a frame by its position in ``frames``. A frame that lost packets on its way, by a
    link policy, is one run, at the position of its first packet.
    """
    order = frames[0].order
    left = [frame.publications for frame in frames]
    here = {frame.place: at for at, frame in enumerate(frames)}
    listed = [0] * len(frames)
    is_whole = list(here) == list(range(len(frames)))
    for place, count in order:
        if (at := here.get(place)) is not None:
            listed[at] += count
        else:
            is_whole = False
    if is_whole and listed == left:
        return order
    runs: list[Run] = []
    for place, count in order:
        at = here.get(place)
        if at is None or not left[at]:
            continue
        taken = count if listed[at] == frames[at].publications else left[at]
        left[at] -= taken
        if runs and runs[-1][0] == at:
            taken += runs.pop()[1]
        runs.append((at, taken))
    return runs + [(at, count) for at, count in enumerate(left) if count]


def pack_bundle(
    frames: Sequence[tuple[Sequence[bytes | memoryview], int]], runs: Sequence[Run]
) -> list[bytes | memoryview]:
    """The wire form of a bundle, in pieces; ``frames``: the pieces and length of each."""
    if len(runs) == len(frames) and all(at == index for at, (index, _) in enumerate(runs)):
        runs = ()
    short = [
        (index, min(RUN_MAX, count - done))
        for index, count in runs
        for done in range(0, count, RUN_MAX)
    ]
    sizes = [size for _, size in frames]
    numbers = [number for run in short for number in run]
    head = _HEADER.pack(BUNDLE_VERSION, len(frames), len(short))
    head += struct.pack(f">{len(sizes)}I{len(numbers)}H", *sizes, *numbers)
    return [head, *(piece for pieces, _ in frames for piece in pieces)]


def is_bundle(payload: bytes) -> bool:
    """Whether ``payload`` claims to be a bundle."""
    return payload[:1] == bytes((BUNDLE_VERSION,))


def frames_of(payload: bytes) -> list[tuple[Frame, int]]:
    """The frames in ``payload``, a frame or a bundle, and the length of each.

    Raises:
        DecodeError: ``payload`` is neither.
    """
    if is_bundle(payload):
        return unpack_bundle(payload)
    return [(unpack(payload), len(payload))]


def unpack_bundle(payload: bytes) -> list[tuple[Frame, int]]:
    """The frames of a bundle, and the length of each.

    Raises:
        DecodeError: ``payload`` is no valid bundle.
    """
    try:
        _, count, run_count = _HEADER.unpack_from(payload)
        if not 2 <= count <= FRAMES_MAX:
            raise DecodeError(f"bundle: {count} frames, 2 to {FRAMES_MAX} wanted")
        at = _HEADER.size
        sizes = struct.unpack_from(f">{count}I", payload, at)
        at += 4 * count
        if run_count > RUNS_MAX:
            raise DecodeError(f"bundle: {run_count} runs, at most {RUNS_MAX} wanted")
        numbers = struct.unpack_from(f">{2 * run_count}H", payload, at)
        at += 4 * run_count
    except struct.error as error:
        raise DecodeError("bundle: ends inside its head") from error
    if at + sum(sizes) != len(payload):
        raise DecodeError(f"bundle: {len(payload)} bytes, {at + sum(sizes)} wanted")
    frames = []
    for size in sizes:
        frames.append((unpack(payload[at : at + size]), size))
        at += size
    runs: Sequence[Run] = list(zip(numbers[::2], numbers[1::2], strict=True))
    if not runs:
        runs = [(place, frame.publications) for place, (frame, _) in enumerate(frames)]
    _check(frames, runs)
    for place, (frame, _) in enumerate(frames):
        frame.place, frame.order = place, runs
    return frames


def _check(frames: Sequence[tuple[Frame, int]], runs: Sequence[Run]) -> None:
    first, _ = frames[0]
    origin, sender, names = first.origin, first.sender, set()
    for frame, _ in frames:
        if frame.flags & ~CUSTODY_FLAG or not frame.publications:
            raise DecodeError(f"bundle: a frame with flags {frame.flags:#04x}")
        if frame.origin != origin or frame.sender != sender:
            raise DecodeError("bundle: frames of several origins or senders")
        names.add((frame.flags, frame.seq))
    if len(names) < len(frames):
        raise DecodeError("bundle: a frame twice")
    counts = [0] * len(frames)
    for place, count in runs:
        if not count or place >= len(frames):
            raise DecodeError(f"bundle: a run of {count} packets of frame {place}")
        counts[place] += count
    if counts != [frame.publications for frame, _ in frames]:
        raise DecodeError("bundle: runs and frames disagree about the number of packets")


def in_order(bodies: Sequence[memoryview], runs: Sequence[Run]) -> Iterator[memoryview]:
    """The packets of ``bodies`` in the order of ``runs``: the bytes of each run.

    Raises:
        DecodeError: A body ends before its runs do.
    """
    at = [0] * len(bodies)
    for index, count in runs:
        body, start = bodies[index], at[index]
        end = _end_of(body, start, count)
        at[index] = end
        yield body[start:end]


def _end_of(body: memoryview, start: int, count: int) -> int:
    """Where the ``count`` packets that begin at ``start`` end."""
    at, size = start, len(body)
    try:
        for _ in range(count):
            length, head = body[at + 1], at + 2
            if length > 127:
                length, head = read_variable_byte_integer(body, at + 1)
            at = head + length
    except IndexError as error:
        raise DecodeError("bundle: a frame ends inside a packet") from error
    if at > size:
        raise DecodeError("bundle: a frame ends inside a packet")
    return at
