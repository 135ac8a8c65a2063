"""What the pages of the documentation say, as far as tests look at it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```$", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?P<text>[^`].*?)\1(?!`)", re.S)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<title>.+?)\s*$", re.M)


def pages() -> list[Path]:
    """README and its like, and everything below docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> Iterator[str]:
    """Targets of the links of a page, without those in code."""
    prose = CODE.sub("", FENCED.sub("", page.read_text("utf-8")))
    for found in LINK.finditer(prose):
        yield found["target"]


def anchors(page: Path) -> set[str]:
    """What may stand behind ``#`` in a link to the page."""
    prose = FENCED.sub("", page.read_text("utf-8"))
    return {_anchor(found["title"]) for found in HEADING.finditer(prose)}


def _anchor(title: str) -> str:
    """As GitHub makes it: small letters, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-")


def code(page: Path) -> Iterator[str]:
    """Each line of fenced or indented code, and each code span."""
    text = page.read_text("utf-8")
    for block in FENCED.finditer(text):
        yield from block.group().splitlines()[1:-1]
    prose = FENCED.sub("", text)
    for line in prose.splitlines():
        if line.startswith("    "):
            yield line
    for span in CODE.finditer(prose):
        yield " ".join(span["text"].split())


def settings() -> set[str]:
    """Every ``section.key`` of agents, gateways and collectors, from the reference."""
    found, section = set(), ""
    for line in (ROOT / "docs" / "configuration.md").read_text("utf-8").splitlines():
        if heading := re.match(r"## \[+(\w+)\]", line):
            section = heading[1]
        elif row := re.match(r"\| `(\w+)` \|", line):
            found.add(f"{section}.{row[1]}")
    return found


def chart_values() -> set[str]:
    """Every ``section.key`` of the Helm chart's values."""
    schema = json.loads((ROOT / "deploy/helm/federator/values.schema.json").read_text("utf-8"))
    return {
        f"{section}.{key}"
        for section, told in schema["properties"].items()
        for key in told.get("properties", ())
    }


def events() -> set[str]:
    """Every event of the log, from its page."""
    page = (ROOT / "docs" / "events.md").read_text("utf-8")
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", page, re.M))
