"""A Chromium, and pages in it that may ask nothing of anyone but their own host."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from typing import Final, Literal, TypedDict
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright
from playwright.async_api import Error as PlaywrightError

from federator.errors import LinkError

PATIENCE_MS: Final = 60_000
DESKTOP, PHONE = (1280, 900), (390, 844)
POLL_S: Final = 0.05

Scheme = Literal["light", "dark"]
"""Which colours a reader wants."""


class Launching(TypedDict):
    """How to start the browser, as playwright is told."""

    executable_path: str | None
    args: list[str]


def launching() -> Launching:
    """The system's browser, or playwright's own where the system has none, as on Ubuntu."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    return {"executable_path": program, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser. Raises ``LinkError``: there is none."""
    async with async_playwright() as driver:
        try:
            running = await driver.chromium.launch(**launching())
        except PlaywrightError:
            raise LinkError("no Chromium starts here: run script/setup") from None
        yield running
        await running.close()


@contextlib.asynccontextmanager
async def opened(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    scheme: Scheme = "light",
) -> AsyncIterator[tuple[Page, list[str]]]:
    """A page, and what is wrong with it so far: its complaints, and what it asked of others."""
    page = await browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    home = urlsplit(url).netloc

    page.on("console", lambda told: wrong.append(f"{told.text} {told.location.get('url', '')}"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: None if urlsplit(asked.url).netloc == home else wrong.append(asked.url),
    )
    await page.goto(url)
    try:
        yield page, wrong
    finally:
        await page.close()


async def until(page: Page, true: str) -> None:
    """Wait until the JavaScript expression ``true`` is. Raises ``LinkError``: it never was.

    The driver's own waiting evaluates text within the page, which the page's policy forbids.
    """
    end_s = time.monotonic() + PATIENCE_MS / 1_000
    while not await page.evaluate(true):
        if time.monotonic() > end_s:
            raise LinkError(f"the page was never so: {true}")
        await asyncio.sleep(POLL_S)
