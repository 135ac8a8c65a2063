"""Four pictures of a console before nine real brokers: calm, congested, a broker dead, a stranger
refused. They are taken once the page shows what it should, or not at all.
"""

import re
import time
from pathlib import Path
from typing import Final

from playwright.async_api import Page, expect

from federator.protocol.types import BrokerId
from lab.console.browser import PATIENCE_MS, chromium, opened, until
from lab.console.stage import OPERATOR, Stage, standing

SIZE: Final = (1280, 1500)
KILLED: Final = BrokerId(4)
SETTLES_MS: Final = 3_000


async def take(folder: Path, scratch: Path) -> dict[str, float]:
    """Pictures into ``folder``; seconds from the kill of a broker until it was red."""
    async with (
        standing(scratch) as stage,
        chromium() as browser,
        opened(browser, stage.console.url, size=SIZE) as (page, _),
    ):
        await _calm(stage, page)
        await page.wait_for_timeout(SETTLES_MS)
        await page.screenshot(path=folder / "calm.png")
        await _congested(stage, page)
        await page.screenshot(path=folder / "congested.png")
        red_s = await red_after_kill(stage, page)
        await page.locator(f"tr[data-broker='{KILLED}'] button").first.click()
        await expect(page.locator("#broker-rows")).to_contain_text("now:", timeout=PATIENCE_MS)
        await page.screenshot(path=folder / "dead.png")
        await refused(page)
        await page.screenshot(path=folder / "refused.png")
    return {"red_s": red_s}


async def _calm(stage: Stage, page: Page) -> None:
    await stage.subscribe(8, "plant/#", client_id="archive")
    await stage.subscribe(2, "plant/oven/temp", client_id="oven-screen")
    await stage.publish(0, "plant/oven/temp", client_id="oven", per_s=20)
    await everything_is_up(page, brokers=9, links=12)
    await expect(page.locator("#tiles")).to_contain_text(re.compile(r"[1-9][\d.]*/s delivered"))


async def _congested(stage: Stage, page: Page) -> None:
    await stage.publish(0, "plant/camera", client_id="camera", per_s=60, size=400)
    await expect(page.locator("#link-rows .state.full").first).to_be_visible(timeout=PATIENCE_MS)


async def everything_is_up(page: Page, *, brokers: int, links: int) -> None:
    """Wait until the page shows so many brokers and links, and none of them down."""
    tiles = page.locator("#tiles")
    await expect(tiles).to_contain_text(f"{brokers} of {brokers}", timeout=PATIENCE_MS)
    await expect(tiles).to_contain_text(f"{links} of {links}", timeout=PATIENCE_MS)


async def red_after_kill(stage: Stage, page: Page) -> float:
    """Kill a broker, and wait until it is red on the map and in the table; seconds that took."""
    began_s = time.monotonic()
    stage.brokers[KILLED].kill9()
    await page.locator(f"tr.down[data-broker='{KILLED}']").wait_for(timeout=PATIENCE_MS)
    drawn = f"FederationMap.drawn('b{KILLED}').classes.includes('bad')"
    await until(page, drawn)
    return time.monotonic() - began_s


async def refused(page: Page) -> None:
    """Try to sign in as an operator with a stranger's password."""
    await page.locator("#sign").click()
    await page.locator("#name").fill(OPERATOR)
    await page.locator("#password").fill("open sesame, please")
    await page.locator("#credentials button[type=submit]").click()
    await expect(page.locator("#refused")).to_contain_text("no such name", timeout=PATIENCE_MS)
