"""Waiting for a condition with a deadline: what tests use where others would sleep."""

from lab.grid.waiting import ASK_S, DEADLINE_S, POLL_S, until

__all__ = ["ASK_S", "DEADLINE_S", "POLL_S", "until", "until_none"]


async def until_none(lacking, what, *, poll_s=POLL_S):
    """As ``until``, for a condition that nothing is lacking: if something is, it is told."""

    def some():
        found = lacking()
        return f"{what}: {len(found)} lacking, among them {found[:10]}"

    await until(lambda: not lacking(), some, poll_s=poll_s)
