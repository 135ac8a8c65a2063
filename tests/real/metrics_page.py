"""What a process tells Prometheus."""

import asyncio
import re
from urllib.request import urlopen


async def metrics(http):
    """The page of metrics of whoever listens at ``http``, a URL."""
    with await asyncio.to_thread(urlopen, f"{http}/metrics") as answer:
        return answer.read().decode()


def values(page, name):
    """By its labels as written, what the metric called ``name`` is."""
    rows = re.findall(rf"^{name}(?:{{(.*)}})? (.*)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in rows}
