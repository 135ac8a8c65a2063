"""The how-to pages do what they say, one after the other, on the two brokers of the tutorial."""

from pathlib import Path

import pytest

from lab.grid.processes.ports import free_ports
from tests.docs.page import follow_all

DOCS = Path(__file__).parents[2] / "docs"
BEFORE = "## 5. Kill an agent"
PAGES = (
    "home-assistant.md",
    "add-a-broker.md",
    "replace-a-broker.md",
    "take-a-broker-out.md",
    "secure.md",
    "use-the-gateway.md",
    "migrate-from-bridges.md",
)
PORTS = tuple(str(port) for port in (*range(18731, 18737), *range(18741, 18747)))


@pytest.mark.timeout(900)  # some fifty processes, on a machine that may be slow
@pytest.mark.full
def test_every_command_of_the_how_to_pages_prints_what_the_page_shows(tmp_path):
    """As printed but for the ports: those of the pages may be taken on this machine."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    begun = tmp_path / "tutorial.md"
    begun.write_text((DOCS / "tutorial.md").read_text("utf-8").partition(BEFORE)[0])

    follow_all([begun, *(DOCS / "how-to" / page for page in PAGES)], tmp_path, ports)
