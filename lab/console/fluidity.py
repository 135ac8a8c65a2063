"""How fluid a console's map is: the time between two frames in Chromium, of a large federation.

So many brokers do not fit one machine, so what their agents would answer is made up here, 100
answers a second, and given to a console's own picture. The picture, the server, the stream of
changes, the page and the browser are the real ones.
"""

import asyncio
import itertools
import math
import random
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from playwright.async_api import FloatRect, Page

from federator.config.all_brokers.collector import CollectedBrokerSettings
from federator.config.all_brokers.console import ConsoleHttpSettings, ConsoleSettings
from federator.console.listener import PagesConfig, listening
from federator.console.observer import Observer
from federator.console.stream import Pulse
from federator.console.web import Console
from federator.protocol.telemetry.agent_status import LinkStatus, LivePage
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from lab.console.browser import chromium, opened, until

ANSWERS_PER_S: Final = 100
PAN_S: Final = 8
STEP_S: Final = 0.016

_FRAMES: Final = """
(seconds) => new Promise((done) => {
  const frames = [], began = performance.now();
  let last = began;
  const step = (now) => {
    frames.push(now - last);
    last = now;
    if (now - began < seconds * 1000) requestAnimationFrame(step);
    else done(frames.slice(1));
  };
  requestAnimationFrame(step);
})
"""


@dataclass(frozen=True, slots=True)
class Frames:
    """Milliseconds between frames while the map was ``moved`` so."""

    moved: str
    times_ms: tuple[float, ...]

    def quantile(self, share: float) -> float:
        ordered = sorted(self.times_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Federation:
    """What agents of ``brokers`` brokers with ``links`` links would answer, by a seed."""

    def __init__(self, brokers: int, links: int, seed: int) -> None:
        self._random = random.Random(seed)
        self.brokers = brokers
        pairs = {(n, n + 1) for n in range(brokers - 1)}
        while len(pairs) < links:
            a, b = self._random.sample(range(brokers), 2)
            pairs.add((min(a, b), max(a, b)))
        self.near: dict[int, list[int]] = {n: [] for n in range(brokers)}
        for a, b in pairs:
            self.near[a].append(b)
            self.near[b].append(a)

    def page(self, broker: int) -> LivePage:
        draw = self._random
        return LivePage(
            ready=True,
            ready_reason="ready",
            epoch=1,
            name=f"site-{broker}",
            clients=draw.randrange(100),
            published=monotonic_ms(),
            delivered=2 * monotonic_ms(),
            links=tuple(
                LinkStatus(
                    neighbour=BrokerId(other),
                    state="up",
                    address="mqtt://10.0.0.1",
                    rtt_ms=draw.randrange(1, 40),
                    rate=(rate := draw.random() * 1e6),
                    capacity=1e6,
                    load=rate / 1e6,
                )
                for other in self.near[broker]
            ),
        )


async def _stay(page: Page) -> None:
    """Leave the map where it is."""


async def _drag(page: Page) -> None:
    x, y = await _middle(page)
    box = await _box(page)
    await page.mouse.move(box["x"] + 6, box["y"] + 6)  # a broker there would be dragged instead
    await page.mouse.down()
    for step in itertools.count():
        await page.mouse.move(x + 120 * math.cos(step / 12), y + 120 * math.sin(step / 12))
        await asyncio.sleep(STEP_S)


async def _wheel(page: Page) -> None:
    await page.mouse.move(*await _middle(page))
    for step in itertools.count():
        await page.mouse.wheel(0, 40 if step // 20 % 2 else -40)
        await asyncio.sleep(STEP_S)


async def _middle(page: Page) -> tuple[float, float]:
    box = await _box(page)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def _box(page: Page) -> FloatRect:
    box = await page.locator("#map").bounding_box()
    assert box is not None, "it is shown"
    return box


_MOVES: Final = {"still": _stay, "dragged": _drag, "zoomed": _wheel}


async def measure(brokers: int, links: int, *, seed: int) -> tuple[list[Frames], dict[str, Any]]:
    named = CollectedBrokerSettings(url="mqtt://127.0.0.1:1")
    settings = ConsoleSettings(brokers=(named,), http=ConsoleHttpSettings(port=0))
    pulse, federation = Pulse(), Federation(brokers, links, seed)
    async with asyncio.TaskGroup() as tasks:
        observer = Observer(settings, tasks, changed=pulse.give)
        for broker in range(brokers):
            at, now_ms = BrokerId(broker), monotonic_ms()
            observer.picture.on_connected(at, f"mqtt://10.0.0.{broker % 250}", now_ms=now_ms)
            _answer(observer, federation, broker, now_ms)
        with listening("127.0.0.1", 0) as listener:
            console = Console(settings, observer, pulse, lambda: (True, "ready"))
            server = uvicorn.Server(PagesConfig(console.application()))
            serving = asyncio.create_task(server.serve(sockets=[listener]), name="pages")
            answering = asyncio.create_task(_go_on(observer, federation, pulse), name="answers")
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            try:
                return await _look(url, brokers)
            finally:
                answering.cancel()
                pulse.end()
                server.should_exit = True
                await serving


def _answer(observer: Observer, federation: Federation, broker: int, now_ms: Millis) -> None:
    page = federation.page(broker)
    observer.picture.on_live(BrokerId(broker), page, at_us=wall_clock_us(), now_ms=now_ms)


async def _go_on(observer: Observer, federation: Federation, pulse: Pulse) -> None:
    broker = 0
    while True:
        for _ in range(ANSWERS_PER_S // 10):
            broker = (broker + 1) % federation.brokers
            _answer(observer, federation, broker, monotonic_ms())
        pulse.give()
        await asyncio.sleep(0.1)


async def _look(url: str, brokers: int) -> tuple[list[Frames], dict[str, Any]]:
    async with chromium() as browser, opened(browser, url) as (page, wrong):
        await until(page, f"FederationMap.counts().brokers === {brokers}")
        began_ms = await page.evaluate("performance.now()")
        await page.wait_for_timeout(3_000)
        found = []
        for moved, move in _MOVES.items():
            moving = asyncio.create_task(move(page), name=moved)
            times = await page.evaluate(_FRAMES, PAN_S)
            moving.cancel()
            await page.mouse.up()
            found.append(Frames(moved, tuple(times)))
        counts = await page.evaluate("FederationMap.counts()")
        return found, {**counts, "drawn_ms": round(began_ms), "wrong": wrong}
