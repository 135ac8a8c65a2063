"""Which frames everybody samples: a few, evenly, and the same ones at every agent.

A frame's label says nothing of being sampled, so agents agree by arithmetic alone. Numbers of one
origin follow each other; multiplied by the golden ratio of 2**32 they fall evenly over all residues
(Fibonacci hashing), so one in ``n`` is taken however the numbers are spaced.

Source: Knuth, The Art of Computer Programming 3, section 6.4; docs/metrics.md, "hops".
"""

_GOLDEN = 2_654_435_769
_MIX = 0x9E3779B97F4A7C15
_MASK = 2**32 - 1


def salt_of(origin: int, epoch: int) -> int:
    """Where the numbers of an origin's incarnation begin on the circle."""
    mixed = (origin * _MIX + epoch) * _MIX
    return (mixed >> 29) & _MASK


def is_sampled(salt: int, seq: int, one_in: int) -> bool:
    """Whether the frame ``seq`` is one of the one in ``one_in`` that are taken; 0: none is.

    Args:
        salt: Of its origin and epoch.
        seq: Its number.
        one_in: All agents must use the same.
    """
    return ((salt + seq * _GOLDEN) & _MASK) * one_in >> 32 == 0 and one_in > 0
