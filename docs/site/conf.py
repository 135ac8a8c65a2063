"""Sphinx's configuration of the site: the pages of the top folder and of docs/, as they are.

The pages stay plain Markdown that reads well on a forge, so nothing in them says where they stand
in the site's navigation. It is made from their links: what docs/README.md links below a heading
stands in the site under that heading, and what only another page links stands under that page.
A page that nothing links makes Sphinx complain, and complaints are errors.
"""

import re
import tomllib
from pathlib import Path

from pygments.lexers.configs import NginxConfLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
INDEX = "docs/README"
PROJECT = sorted(page.stem for page in ROOT.glob("*.md") if page.stem != "README")
_FENCED = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```$", re.M | re.S)
_LINK_OR_HEADING = re.compile(r"^## (?P<heading>.+)$|\]\((?P<target>[^)\s#:]+)\.md[#)]", re.M)

project = "federator"
version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
release = version
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "**/__pycache__"]
root_doc = "README"
highlight_language = "none"  # of blocks that name none
myst_heading_anchors = 6

html_theme = "furo"
html_title = f"federator {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_additional_pages = {"index": "index.html"}
html_use_index = False
html_show_search_summary = False  # fetched from pages, which browsers refuse to pages on disk
templates_path = ["templates"]


def _links(page: str) -> list[tuple[str, str]]:
    """The pages that ``page`` links, in order, each with the heading above the link."""
    path = ROOT / f"{page}.md"
    found, heading = [], ""
    for match in _LINK_OR_HEADING.finditer(_FENCED.sub("", path.read_text("utf-8"))):
        if match["heading"]:
            heading = match["heading"]
            continue
        target = (path.parent / f"{match['target']}.md").resolve()
        if target.is_file() and target.is_relative_to(ROOT):
            found.append((heading, str(target.relative_to(ROOT).with_suffix(""))))
    return found


def _navigation() -> dict[str, str]:
    """What each page's source gets at its end: hidden tables of contents of the pages below it."""
    seen = {root_doc, INDEX, *PROJECT}
    below = {root_doc: _toctree("", [INDEX])}
    chapters: dict[str, list[str]] = {}
    for heading, page in _links(INDEX):
        if page not in seen:
            seen.add(page)
            chapters.setdefault(heading, []).append(page)
    for heading, pages in chapters.items():
        below[root_doc] += _toctree(heading, pages)
    below[root_doc] += _toctree("Project", PROJECT)
    waiting = [page for pages in chapters.values() for page in pages]
    while waiting:
        page = waiting.pop(0)
        new = [each for each in dict.fromkeys(to for _, to in _links(page)) if each not in seen]
        if new:
            seen.update(new)
            waiting += new
            below[page] = _toctree("", new)
    return below


def _toctree(caption: str, pages: list[str]) -> str:
    entries = "\n".join(f"/{page}" for page in pages)
    options = f":hidden:\n:caption: {caption}" if caption else ":hidden:"
    return f"\n\n```{{toctree}}\n{options}\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    """Have each page read with its part of the navigation."""
    below = _navigation()

    def add(_app: Sphinx, page: str, source: list[str]) -> None:
        source[0] += below.get(page, "")

    app.connect("source-read", add)
    app.add_lexer("conf", NginxConfLexer)
