"""The browser in which pages are tested and pictured."""

import pytest

from federator.errors import LinkError
from lab.console import browser


async def test_where_no_browser_is_the_reader_is_told_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setattr(browser.shutil, "which", lambda program: None)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))

    with pytest.raises(LinkError, match="no Chromium starts here: run script/setup"):
        async with browser.chromium():
            pass
