"""The system's Chromium, and dashboards of the real program, for tests that look at pages."""

import contextlib
import subprocess
import sys
import threading
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from lab.console.browser import DESKTOP, PATIENCE_MS, launching


@contextlib.contextmanager
def chromium():
    with sync_playwright() as driver:
        running = driver.chromium.launch(**launching())
        yield running
        running.close()


@contextlib.contextmanager
def opened(browser, url, *, size=DESKTOP, scheme="light"):
    """A page whose console must stay empty, and that may ask nothing of anyone but its own host."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
    home = urlsplit(url).netloc
    page.on("request", lambda asked: urlsplit(asked.url).netloc == home or wrong.append(asked.url))
    page.goto(url)
    try:
        yield page
    finally:
        page.close()
    assert wrong == []


@contextlib.contextmanager
def served(folder, *options):
    """The dashboard's address and its process."""
    command = [
        sys.executable,
        "-m",
        "federator_analytics",
        "serve",
        str(folder),
        "--port",
        "0",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = threading.Timer(120, process.kill)
    deadline.start()
    try:
        url = process.stdout.readline().strip()
        deadline.cancel()
        assert url.startswith("http://127.0.0.1:")
        yield url, process
    finally:
        deadline.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
