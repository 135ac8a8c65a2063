"""The site of docs/: made without a complaint, complete, and without a link that leads nowhere."""

import subprocess
import sys

import pytest
from playwright.sync_api import expect

from docs.site.links import broken, external, loaded_from_outside
from lab.console.browser import DESKTOP, PHONE
from tests.analytics.chromium import chromium, opened
from tests.docs.markdown import ROOT, pages


def build(source, out):
    return subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
            *("-c", source / "docs" / "site", "-d", out / "doctrees", source, out / "site"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    built = build(ROOT, out)
    assert (built.returncode, built.stderr) == (0, "")
    return out / "site"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


def test_every_page_is_in_the_site_and_in_its_navigation(site):
    expected = {str(page.relative_to(ROOT).with_suffix("")) for page in pages()}
    made = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}

    assert expected == made - {"index", "search"}


def test_no_link_leads_nowhere_and_nothing_is_loaded_from_outside(site):
    assert broken(site) == []
    assert loaded_from_outside(site) == []
    assert "https://diataxis.fr" in external(site)


def test_a_wrong_link_and_a_foreign_script_are_found(tmp_path):
    (tmp_path / "there.html").write_text('<h1 id="here">There</h1>')
    (tmp_path / "page.html").write_text(
        '<a href="there.html#here">a</a><a href="there.html#gone">b</a><a href="#nowhere">c</a>'
        '<img src="lost.svg"><script src="https://example.org/x.js"></script>'
    )

    assert broken(tmp_path) == [
        "page.html: there.html#gone",
        "page.html: #nowhere",
        "page.html: lost.svg",
    ]
    assert loaded_from_outside(tmp_path) == ["https://example.org/x.js"]


def small_source(folder, index):
    """A repository of four pages, with our own configuration of the site."""
    (folder / "docs" / "site").mkdir(parents=True)
    for name in ("conf.py", "templates"):
        (folder / "docs" / "site" / name).symlink_to(ROOT / "docs" / "site" / name)
    (folder / "README.md").write_text("# Us\n\n[docs](docs/README.md), [news](CHANGELOG.md)\n")
    (folder / "CHANGELOG.md").write_text("# News\n")
    (folder / "docs" / "README.md").write_text(f"# Documentation\n\n## Learn\n\n{index}\n")
    (folder / "docs" / "new.md").write_text("# A new page\n\n## One\n")
    (folder / "pyproject.toml").write_text('[project]\nversion = "1"\n')
    return folder


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        ("- [new](new.md#one)", ""),
        ("nothing", "new.md: WARNING: document isn't included in any toctree"),
        (
            "- [new](new.md#two)",
            "README.md:5: WARNING: local id not found in doc 'docs/new': 'two'",
        ),
        ("- [new](new.md), [lost](lost.md)", "'myst' cross-reference target not found: 'lost.md'"),
    ],
)
def test_a_page_without_a_link_and_a_link_without_a_page_are_errors(tmp_path, index, complaint):
    source = small_source(tmp_path / "source", index)

    built = build(source, tmp_path)

    assert (built.returncode == 0) == (complaint == "")
    assert complaint in built.stderr


@pytest.mark.slow
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_from_disk_and_fit(browser, site, size, scheme):
    with opened(browser, (site / "index.html").as_uri(), size=size, scheme=scheme) as page:
        expect(page.locator("h1").first).to_contain_text("federator")
        for name in ("docs/benchmarks", "docs/cli", "docs/configuration", "docs/how-it-works"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = max(int(part) for part in background.strip("rgba()").split(",")[:3]) < 128
        assert dark == (scheme == "dark")


@pytest.mark.slow
def test_the_search_finds_a_key_from_disk(browser, site):
    with opened(browser, (site / "README.html").as_uri()) as page:
        page.locator("input[name=q]").first.fill("outbox_bytes_max")
        page.keyboard.press("Enter")

        result = page.locator("#search-results li a", has_text="Configuration").first
        expect(result).to_be_visible()
        result.click()
        expect(page.locator("h1").first).to_contain_text("Configuration")
