"""What code and pages cite is here, or stands in docs/references.md."""

import re

from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "references.md").read_text("utf-8")
NOT_HERE = re.compile(
    r"design section|\b(?:testing|mosquitto|design|style|review|attacks|peers)\.md"
    r"|READINGS\b|\bpapers/[a-z]"
)
"""Notes of the developers, which are no part of the repository."""


def sources():
    tops = ("federator", "lab", "analytics", "tests", "deploy", "script", "docs")
    for top in tops:
        for path in sorted((ROOT / top).rglob("*")):
            known = path.suffix in (".py", ".md", ".toml", ".yml") or path.parent.name == "script"
            if known and path.is_file() and "__pycache__" not in path.parts:
                yield path, path.read_text("utf-8")


def test_nothing_cites_a_file_that_is_not_here():
    found = [
        f"{path.relative_to(ROOT)}: {hit}"
        for path, text in sources()
        if path.name != "test_references.py"
        for hit in NOT_HERE.findall(text.replace("lab/papers/", "").replace("tests/papers/", ""))
    ]

    assert found == []


def test_every_page_that_code_cites_exists():
    lost = {
        f"{path.relative_to(ROOT)}: docs/{page}"
        for path, text in sources()
        for page in re.findall(r"\bdocs/([\w/-]+\.md)\b", text)
        if not (ROOT / "docs" / page).exists() and path.suffix == ".py"
    }

    assert lost == set()


def numbers(page):
    """Headings ``7`` and items of their numbered lists ``7.3``."""
    found, section = set(), ""
    for line in page.read_text("utf-8").splitlines():
        if heading := re.match(r"#+ (\d+(?:\.\d+)*)\b", line):
            section = heading[1]
            found.add(section)
        elif item := re.match(r"(\d+)\. ", line):
            found.add(f"{section}.{item[1]}")
    return found


def test_every_numbered_section_that_is_cited_exists():
    known = {page.name: numbers(page) for page in (ROOT / "docs").glob("*.md")}
    cites = re.compile(r"docs/([\w-]+\.md),? (?:sections? )?(\d+(?:\.\d+)*)")
    lost = {
        f"{path.relative_to(ROOT)}: {page} {number}"
        for path, text in sources()
        for page, number in cites.findall(text)
        if known.get(page) and number not in known[page]
    }

    assert lost == set()


def test_every_paper_and_rfc_that_is_cited_is_listed():
    cites = re.compile(r"\b(?:Spohn|Chen|Manzoni|Fawwaz|Esposito|Ribas) \d{4}\b|\bRFC \d+\b")
    cited = {hit for _, text in sources() for hit in cites.findall(text)}

    assert sorted(hit for hit in cited if hit not in PAGE) == []
