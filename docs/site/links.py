"""Links of a built site: those that lead nowhere, and those that lead out of it.

    python -m docs.site.links FOLDER             # exit code 1 if a link within it leads nowhere
    python -m docs.site.links FOLDER --external  # each address outside, and who names it

Addresses outside are listed, not asked.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup


@dataclass(frozen=True)
class Link:
    """What one page refers to; ``loads`` if a browser fetches it without a click."""

    page: Path
    target: str
    loads: bool

    @property
    def leaves(self) -> bool:
        """Whether it leads out of the site."""
        parts = urlsplit(self.target)
        return bool(parts.scheme or parts.netloc)


def links(folder: Path) -> list[Link]:
    """Every link, image, script and style sheet of every page below ``folder``."""
    return [
        Link(page, str(target), tag.name != "a")
        for page in sorted(folder.rglob("*.html"))
        for tag in _soup(page).find_all(True)
        for attribute in ("href", "src")
        if (target := tag.get(attribute))
    ]


def broken(folder: Path) -> list[str]:
    """A line for each link within the site to a file or an anchor that is not there."""
    return [
        f"{link.page.relative_to(folder)}: {link.target}"
        for link in links(folder)
        if not link.leaves and not _is_there(link)
    ]


def external(folder: Path) -> dict[str, list[str]]:
    """Each address outside, and the pages that name it."""
    pages = defaultdict(set)
    for link in links(folder):
        if link.leaves:
            pages[link.target].add(str(link.page.relative_to(folder)))
    return {target: sorted(names) for target, names in sorted(pages.items())}


def loaded_from_outside(folder: Path) -> list[str]:
    """Addresses outside that a browser would fetch by itself."""
    return sorted({link.target for link in links(folder) if link.leaves and link.loads})


def _is_there(link: Link) -> bool:
    parts = urlsplit(link.target)
    file = link.page.parent / unquote(parts.path) if parts.path else link.page
    if not file.is_file():
        return False
    return not parts.fragment or unquote(parts.fragment) in _anchors(file.resolve())


@cache
def _anchors(page: Path) -> frozenset[str]:
    return frozenset(str(tag["id"]) for tag in _soup(page).find_all(id=True))


@cache
def _soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_bytes(), "html.parser")


def main() -> None:
    """Check the links of a folder, or list those that lead out of it."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.links", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--external", action="store_true")
    arguments = parser.parse_args()
    if arguments.external:
        for target, pages in external(arguments.folder).items():
            print(target, *pages)
        return
    lost = broken(arguments.folder) + loaded_from_outside(arguments.folder)
    print("\n".join(lost) or f"{len(links(arguments.folder)):,} links, none leads nowhere")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
