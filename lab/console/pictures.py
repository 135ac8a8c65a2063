"""Pictures of a console before nine real brokers in four states: calm, congested, a broker dead, a
stranger refused. Each is of a desktop and a phone, light and dark. They are taken once the page
shows what it should, or not at all.
"""

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.async_api import Page, expect

from federator.protocol.types import BrokerId
from lab.console.browser import PATIENCE_MS, PHONE, Scheme, chromium, opened, until
from lab.console.stage import OPERATOR, ConsoleStage

SIZE: Final = (1280, 1100)
KILLED: Final = BrokerId(4)
SETTLES_MS: Final = 6_000
"""More than a sample takes."""


@dataclass(frozen=True, slots=True)
class Look:
    """How somebody looks at the page; ``suffix`` is of the picture's name."""

    suffix: str
    size: tuple[int, int]
    scheme: Scheme = "light"


LOOKS: Final = (
    Look("", SIZE),
    Look("-dark", SIZE, "dark"),
    Look("-phone", PHONE),
    Look("-phone-dark", PHONE, "dark"),
)
"""The first one is waited for; the others are given the time to show the same."""


async def take(folder: Path, scratch: Path) -> dict[str, float]:
    """Pictures into ``folder``; seconds from the kill of a broker until it was red."""
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(ConsoleStage(scratch))
        browser = await stack.enter_async_context(chromium())
        pages = []
        for look in LOOKS:
            opening = opened(browser, stage.console.url, size=look.size, scheme=look.scheme)
            pages.append((await stack.enter_async_context(opening))[0])
        page = pages[0]

        await _calm(stage, page)
        await page.wait_for_timeout(SETTLES_MS)
        await _shoot(folder, "calm", pages)
        await _congested(stage, page)
        for each in pages:
            await each.locator("#link-rows tr button").first.click()
        await page.wait_for_timeout(SETTLES_MS)
        await _shoot(folder, "congested", pages)
        red_s = await red_after_kill(stage, page)
        await expect(page.locator("#broker-rows")).to_contain_text("now:", timeout=PATIENCE_MS)
        for each in pages:
            await each.locator(f"tr[data-broker='{KILLED}'] button").first.click()
        await page.wait_for_timeout(SETTLES_MS)
        await _shoot(folder, "dead", pages)
        for each in pages:
            await refused(each)
        await _shoot(folder, "refused", pages, whole=False)
    return {"red_s": red_s}


async def _shoot(folder: Path, name: str, pages: Sequence[Page], *, whole: bool = True) -> None:
    for look, page in zip(LOOKS, pages, strict=True):
        await page.screenshot(path=folder / f"{name}{look.suffix}.png", full_page=whole)


async def _calm(stage: ConsoleStage, page: Page) -> None:
    await stage.client(BrokerId(8), "archive", "plant/#", qos=0)
    await stage.client(BrokerId(2), "oven-screen", "plant/oven/temp", qos=0)
    await stage.publish(BrokerId(0), "oven", "plant/oven/temp", per_s=20)
    await everything_is_up(page, brokers=9, links=12)
    await expect(page.locator("#tiles")).to_contain_text(re.compile(r"[1-9][\d.]*/s delivered"))


async def _congested(stage: ConsoleStage, page: Page) -> None:
    await stage.publish(BrokerId(0), "camera", "plant/camera", per_s=60, size=400)
    await expect(page.locator("#link-rows .state.full").first).to_be_visible(timeout=PATIENCE_MS)


async def everything_is_up(page: Page, *, brokers: int, links: int) -> None:
    tiles = page.locator("#tiles")
    await expect(tiles).to_contain_text(f"{brokers} of {brokers}", timeout=PATIENCE_MS)
    await expect(tiles).to_contain_text(f"{links} of {links}", timeout=PATIENCE_MS)


async def red_after_kill(stage: ConsoleStage, page: Page) -> float:
    """Kill a broker, and wait until it is red on the map and in the table; seconds that took."""
    began_s = time.monotonic()
    stage.brokers[KILLED].kill9()
    await page.locator(f"tr.down[data-broker='{KILLED}']").wait_for(timeout=PATIENCE_MS)
    drawn = f"FederationMap.drawn('b{KILLED}').classes.includes('bad')"
    await until(page, drawn)
    return time.monotonic() - began_s


async def refused(page: Page) -> None:
    await page.locator("#sign").click()
    await page.locator("#name").fill(OPERATOR)
    await page.locator("#password").fill("open sesame, please")
    await page.locator("#credentials button[type=submit]").click()
    await expect(page.locator("#refused")).to_contain_text("no such name", timeout=PATIENCE_MS)
