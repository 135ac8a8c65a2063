"""Which spool this is, and up to where its batches may have been given out.

A batch number must never be given out twice, or a reader would take a new batch for one that it
has. The files say which numbers were given out, unless the machine lost its power: then the last
of them may be gone. So the next numbers are claimed on disk a block at a time, and another boot
goes on behind the block. Who reads finds no batches there, and goes on too.

Source: docs/metrics.md, "The spool".
"""

import secrets
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec

from federator.protocol.metric_records.envelope import Natural, SpoolId
from federator.runtime.durable import this_boot
from federator.runtime.state_dir import write_whole

CLAIM: Final = 4_096
"""Numbers claimed at a time: an hour of batches."""


class Claim(msgspec.Struct, frozen=True):
    """What stands in the file.

    Attributes:
        spool: The spool's id.
        boot: In which boot of the machine this was written; empty where no one can say.
        last: The last batch of the last whole segment then.
        through: No number beyond has been given out.
    """

    spool: SpoolId
    boot: Annotated[str, msgspec.Meta(max_length=64)]
    last: Natural
    through: Natural


class Numbering:
    """The numbers of one spool.

    Args:
        path: Where the claim stands.
        claim: As read or made.
        next_batch: The next number to give out.
    """

    def __init__(self, path: Path, claim: Claim, next_batch: int) -> None:
        self.next_batch = next_batch
        self._path = path
        self._claim = claim

    @classmethod
    def open(cls, path: Path, held: dict[str, int]) -> Self:
        """Go on where an earlier life ended, or begin a new spool.

        Args:
            path: Where the claim stands.
            held: The last batch on disk of each spool.
        """
        boot = (this_boot() or b"").hex()
        try:
            claim = msgspec.json.decode(path.read_bytes(), type=Claim)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            fresh = Claim(secrets.token_hex(8), boot, 0, 0)
            return cls(path, fresh, 1)
        last = max(claim.last, held.get(claim.spool, 0))
        if not boot or claim.boot != boot:
            last = max(last, claim.through)
        return cls(path, Claim(claim.spool, boot, last, 0), last + 1)

    @property
    def spool(self) -> str:
        """The spool's id."""
        return self._claim.spool

    def claim(self, through: int) -> None:
        """Numbers up to ``through`` are about to be given out.

        Raises:
            OSError: This cannot be written down; they must not be.
        """
        if through > self._claim.through:
            self._write(self._claim.last, through + CLAIM)

    def finished(self, last: int) -> None:
        """Batch ``last`` ends a whole segment.

        Raises:
            OSError: This cannot be written down.
        """
        self._write(last, max(self._claim.through, last))

    def _write(self, last: int, through: int) -> None:
        claim = Claim(self._claim.spool, self._claim.boot, last, through)
        write_whole(self._path, msgspec.json.encode(claim) + b"\n")
        self._claim = claim
