"""The report and the dashboard in a real browser, served by the real program."""

import http.client
import json
import re
import socket
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from federator_analytics.digest.figures import summarise
from federator_analytics.digest.tables import read_tables
from federator_analytics.report.page import write_page
from playwright.sync_api import expect

from federator.console.listener import PATIENCE_S
from lab.console.browser import DESKTOP, PATIENCE_MS, PHONE
from tests.analytics.chromium import chromium, opened, served
from tests.analytics.example_tables import HOSTILE, example, write_table, write_tables
from tests.analytics.programs import run

SIZES = [DESKTOP, PHONE]


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """One folder and the address of its dashboard, for tests that only replace tables."""
    folder = tmp_path_factory.mktemp("tables")
    with served(folder) as (url, _):
        yield folder, url


def fresh(tables):
    """The same tables, their newest record of this moment."""
    now = datetime.now(UTC)
    span = [row | {"first": now - timedelta(minutes=6), "last": now} for row in tables["span"]]
    return tables | {"span": span}


def no_wider_than_the_screen(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_tables(folder, example())
    tables = read_tables(folder)
    write_page(tables, summarise(tables, f"Report {HOSTILE}"), folder, made_at=datetime.now(UTC))
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("size", SIZES, ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_from_disk_and_fits(browser, report, size, scheme):
    with opened(browser, report, size=size, scheme=scheme) as page:
        expect(page.locator("h2.verdict")).to_contain_text("Not healthy")
        assert no_wider_than_the_screen(page)
        assert page.locator("svg.chart").count() > 10
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
        assert dark == (scheme == "dark")


def test_the_button_changes_between_light_and_dark_and_charts_follow(browser, report):
    with opened(browser, report) as page:
        bar = page.locator('svg.chart [fill="#0072b2"]').first
        before = bar.evaluate("each => getComputedStyle(each).fill")
        page.locator("#theme").click()

        assert page.locator("html").get_attribute("data-theme") == "dark"
        assert bar.evaluate("each => getComputedStyle(each).fill") != before


def test_print_is_in_ink_on_white_and_without_buttons(browser, report):
    with opened(browser, report, scheme="dark") as page:
        page.emulate_media(media="print")

        expect(page.locator("#theme")).to_be_hidden()
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert ink == "rgb(26, 26, 27)"


def test_a_mark_tells_its_figures_under_the_pointer(browser, report):
    with opened(browser, report) as page:
        page.locator("#traffic svg.chart [aria-roledescription='bar']").first.hover()

        expect(page.locator("#tip")).to_contain_text("publications")


def test_the_dashboard_follows_a_brokers_death_and_return(browser, dashboard):
    folder, url = dashboard
    tables = fresh(example())
    deaths = [row for row in tables["events"] if row["kind"] == "link_down"]
    write_tables(folder, tables | {"events": [e for e in tables["events"] if e not in deaths]})

    with opened(browser, url) as page:
        broker = page.locator("svg.topology g.broker", has_text="broker hall-3 (9):")
        expect(broker).to_have_class("broker up", timeout=PATIENCE_MS)
        expect(page.locator("#fresh")).to_contain_text("Newest record", timeout=PATIENCE_MS)

        write_table(folder, "events", tables["events"])

        expect(broker).to_have_class("broker down", timeout=PATIENCE_MS)
        expect(page.locator("[data-live=events]")).to_contain_text(
            "link down (neighbour hall-3 (9))"
        )
        expect(page.locator("[data-live=summary]")).to_contain_text("Broker hall-3 (9) is down.")

        back = [e | {"kind": "link_up"} for e in deaths]
        later = [e | {"window_start": e["window_start"] + timedelta(minutes=1)} for e in back]
        write_table(folder, "events", tables["events"] + later)

        expect(broker).to_have_class("broker up", timeout=PATIENCE_MS)


@pytest.mark.parametrize("size", SIZES, ids=["desktop", "phone"])
def test_the_dashboard_shows_hostile_names_as_text_and_fits(browser, dashboard, size):
    folder, url = dashboard
    write_tables(folder, fresh(example()))

    with opened(browser, url, size=size, scheme="dark") as page:
        expect(page.locator("[data-live=events]")).to_contain_text(HOSTILE, timeout=PATIENCE_MS)
        assert page.locator("main script, main b, main img").count() == 0
        assert no_wider_than_the_screen(page)


def test_the_dashboard_says_how_old_its_data_is(browser, dashboard):
    folder, url = dashboard
    write_tables(folder, example())  # of months ago

    with opened(browser, url) as page:
        expect(page.locator("#fresh")).to_contain_text("Stale: Newest record", timeout=PATIENCE_MS)
        write_table(folder, "span", fresh(example())["span"])
        expect(page.locator("#fresh")).not_to_contain_text("Stale", timeout=PATIENCE_MS)


def test_a_dashboard_whose_server_died_says_so(browser, tmp_path):
    write_tables(tmp_path, fresh(example()))
    page = browser.new_page()  # its console tells of refused connections

    with served(tmp_path) as (url, process):
        page.goto(url)
        expect(page.locator("#fresh")).to_contain_text("Newest record", timeout=PATIENCE_MS)
        process.kill()

        told = page.locator("#fresh.gone")
        expect(told).to_contain_text("does not answer", timeout=PATIENCE_MS)
        expect(page.locator("svg.topology")).to_be_visible()
    page.close()


def test_tables_that_break_under_the_dashboard_leave_the_last_picture(browser, dashboard):
    folder, url = dashboard
    write_tables(folder, fresh(example()))

    with opened(browser, url) as page:
        expect(page.locator("svg.topology")).to_be_visible(timeout=PATIENCE_MS)
        (folder / "links" / "part-0.parquet").write_bytes(b"PAR1 half")
        expect(page.locator("#fresh")).to_contain_text("cannot be read", timeout=PATIENCE_MS)
        expect(page.locator("svg.topology g.link")).to_have_count(12)

        write_tables(folder, fresh(example()) | {"links": example()["links"][:11]})

        expect(page.locator("#fresh")).not_to_contain_text("cannot", timeout=PATIENCE_MS)


def test_a_dashboard_may_be_opened_before_there_are_tables(browser, tmp_path):
    with served(tmp_path) as (url, _), opened(browser, url) as page:
        expect(page.locator("#fresh")).to_contain_text("no tables yet", timeout=PATIENCE_MS)
        write_tables(tmp_path, fresh(example()))
        expect(page.locator("svg.topology")).to_be_visible(timeout=PATIENCE_MS)


def ask(url, path, **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_dashboard_gives_nothing_but_its_own_files_to_its_own_name(dashboard):
    folder, url = dashboard
    (folder / "secret").write_text("root:x")
    traps = [
        "/../secret", "/assets/../secret", "/assets/..%2f..%2fsecret", "/assets/%2e%2e/app.py",
        "/assets//etc/passwd", "/assets/theme.css%00.js", "/secret", "/assets/live.html.j2",
    ]  # fmt: skip

    for trap in traps:
        answer, body = ask(url, trap)
        assert answer.status == 404, trap
        assert b"root" not in body
    assert ask(url, "/live", Host="evil.example")[0].status == 400
    answer, _ = ask(url, "/")
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_serve_says_in_one_line_what_is_wrong(tmp_path):
    (tmp_path / "file").write_text("")
    with served(tmp_path) as (url, _):
        taken = run("serve", tmp_path, "--port", urlsplit(url).port)
    wrong = run("serve", tmp_path / "file")

    assert (taken.returncode, wrong.returncode) == (69, 64)
    for run_, pattern in (
        (taken, r"cannot listen on 127.0.0.1 port \d+: "),
        (wrong, "file: is a file, and a folder"),
    ):
        assert re.search(pattern, run_.stderr)
        assert run_.stderr.count("\n") == 1


def test_the_dashboard_leads_to_the_console_and_nowhere_that_is_no_page(browser, tmp_path):
    live = "http://127.0.0.1:9887"
    with served(tmp_path, "--console", live) as (url, _), opened(browser, url) as page:
        link = page.get_by_role("link", name="live: the console")
        assert link.get_attribute("href") == live
    assert run("serve", tmp_path, "--console", "javascript:alert(1)").returncode == 64


def test_who_connects_and_asks_nothing_is_let_go(tmp_path):
    with served(tmp_path) as (url, _):
        place = urlsplit(url)
        with socket.create_connection(
            (place.hostname, place.port), timeout=PATIENCE_S * 10
        ) as idle:
            assert idle.recv(1) == b""


def test_serve_waits_for_a_folder_that_is_not_there_yet(tmp_path):
    with served(tmp_path / "later") as (url, _):
        before = json.loads(ask(url, "/live")[1])
        write_tables(tmp_path / "later", fresh(example()))

        end_s = time.monotonic() + 30
        while (seen := json.loads(ask(url, "/live")[1]))["newest_ms"] is None:
            assert time.monotonic() < end_s, seen["trouble"]
            time.sleep(0.1)

    assert before["newest_ms"] is None
