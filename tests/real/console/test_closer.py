"""A closer look at one broker, topic and client, before real brokers and a real dashboard."""

import urllib.request

import pytest
from playwright.async_api import expect

from lab.console.browser import PATIENCE_MS, PHONE, chromium, opened
from lab.console.pictures import everything_is_up, red_after_kill
from lab.console.stage import NAMES, ConsoleStage
from tests.analytics.chromium import served
from tests.analytics.example_tables import example, write_tables
from tests.real.console.test_console import HOSTILE
from tests.real.polling import until


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """One that has read its tables: what it takes to begin is not what is shown here."""
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, example())
    with served(folder) as (url, _):
        with urllib.request.urlopen(f"{url}history?broker=3&hours=1", timeout=120) as answer:
            assert answer.status == 200
        yield url.rstrip("/")


async def spoken(page, title):
    """What a reader of the screen hears of a chart."""
    chart = page.locator(f'#closer svg[aria-label^="{title},"]')
    return await chart.get_attribute("aria-label", timeout=PATIENCE_MS)


async def asked_again(answers, expected):
    await answers.get_by_role("button", name="Ask again").click()
    await answers.page.wait_for_timeout(500)
    return expected in await answers.inner_text()


async def test_a_broker_its_clients_and_the_last_hours(tmp_path, dashboard):
    async with (
        ConsoleStage(tmp_path, side=2, history=dashboard) as stage,
        chromium() as browser,
        opened(browser, stage.console.url) as (page, wrong),
    ):
        await stage.client(3, "archive", "plant/#", qos=0)
        await stage.publish(0, "oven", "plant/oven", per_s=20)
        await everything_is_up(page, brokers=4, links=4)

        await page.locator("tr[data-broker='3'] button").first.click()
        await expect(page.locator("#closer-title")).to_have_text(f"Broker {NAMES[3]} (3)")
        assert await page.evaluate("location.hash") == "#broker=3&span=3600"

        # clients that its agent knows, and what the tables say of before
        answers = page.locator("#closer-answers")
        await until(lambda: asked_again(answers, "archive"), "the agent knows its client")
        await expect(answers).to_contain_text("none but those behind gateways")
        past = page.locator("#closer-past")
        await expect(past).to_contain_text("Until the newest record", timeout=PATIENCE_MS)
        await expect(past).to_contain_text("link up (neighbour <img src=x")
        assert "from here: last" in await spoken(page, "Carried")
        await page.locator("#closer-past summary").first.click()
        rows = page.locator("#closer-past figure").first.locator("tbody tr")
        assert await rows.count() >= 3

        # on to its client, to its topic, and back by the browser's own buttons
        await answers.get_by_role("button", name="archive").click()
        await expect(page.locator("#closer-title")).to_have_text("Client archive")
        await expect(answers).to_contain_text("subscribes", timeout=PATIENCE_MS)
        await expect(page.locator("#closer-facts")).to_contain_text("steps in: ")
        await answers.get_by_role("button", name="plant/#").click()
        await expect(page.locator("#closer-title")).to_have_text("Topic plant/#")
        await expect(answers).to_contain_text(
            f"core {NAMES[3]} (3); clients at {NAMES[3]} (3)", timeout=PATIENCE_MS
        )
        await page.go_back()
        await expect(page.locator("#closer-title")).to_have_text("Client archive")
        await page.go_back()
        await expect(page.locator("#closer-title")).to_have_text(f"Broker {NAMES[3]} (3)")
        await page.locator("#closer-shut").click()
        await expect(page.locator("#closer")).to_be_hidden()
        assert "#" not in await page.evaluate("location.href")
        assert wrong == []


@pytest.mark.full
async def test_an_address_leads_to_a_topic_that_is_hostile_and_to_nothing(tmp_path):
    async with ConsoleStage(tmp_path, side=2) as stage, chromium() as browser:
        await stage.client(1, HOSTILE, HOSTILE, qos=0)
        for kind in ("topic", "client"):
            url = f"{stage.console.url}#{kind}={HOSTILE.replace('&', '%26')}"
            async with opened(browser, url) as (page, wrong):
                title = page.locator("#closer-title")
                await expect(title).to_contain_text(HOSTILE, timeout=PATIENCE_MS)
                answers = page.locator("#closer-answers")
                await expect(answers).to_contain_text("subscribes", timeout=PATIENCE_MS)
                assert await page.locator("main img, main script").count() == 0
                assert wrong == []
        nothing = [
            "broker=77", "broker=%3Cb%3E", "link=1-99", "link=x", "client=nobody", "topic=a/b",
            "span=1", "broker=&topic=", "x", "%",
        ]  # fmt: skip
        async with opened(browser, stage.console.url) as (page, wrong):
            for fragment in nothing:
                await page.evaluate("fragment => { location.hash = fragment; }", fragment)
                await page.wait_for_timeout(500)
                await expect(page.locator("#fresh")).to_contain_text("Live", timeout=PATIENCE_MS)
            assert [each for each in wrong if "Failed to load resource" not in each] == []


async def test_a_death_stands_out_in_the_events_of_its_range(tmp_path):
    async with (
        ConsoleStage(tmp_path) as stage,
        chromium() as browser,
        opened(browser, f"{stage.console.url}#broker=4&span=300") as (page, wrong),
    ):
        await everything_is_up(page, brokers=9, links=12)
        assert await page.locator("#span").input_value() == "300"
        await red_after_kill(stage, page)

        death = page.locator("#closer-events li.death", has_text="hall (4) is down")
        await expect(death).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("#closer-facts tr.down")).to_have_count(4)
        # another broker's events are not among them
        await page.locator("tr[data-broker='8'] button").first.click()
        await expect(page.locator("#closer-title")).to_contain_text("(8)")
        await expect(page.locator("#closer-events li.death")).to_have_count(0)
        assert [each for each in wrong if "502" not in each] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.few(1)
async def test_a_closer_look_fits_a_phone_and_goes_by_keyboard(tmp_path, scheme):
    async with (
        ConsoleStage(tmp_path, side=2) as stage,
        chromium() as browser,
        opened(browser, stage.console.url, size=PHONE, scheme=scheme) as (page, wrong),
    ):
        await everything_is_up(page, brokers=4, links=4)
        await page.locator("tr[data-broker='0'] button").first.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#closer-title")).to_contain_text("(0)", timeout=PATIENCE_MS)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

        # every part has a name
        for role, name in (
            ("region", "Links of this broker"), ("region", "Events of this time"),
            ("combobox", "Time"), ("heading", "Clients that its agent knows"),
            ("heading", f"Broker {NAMES[0]} (0)"), ("heading", "From the tables of analytics"),
        ):  # fmt: skip
            assert await page.get_by_role(role, name=name).count() >= 1, name
        await page.locator("#span").focus()
        await page.keyboard.press("Home")
        assert "span=300" in await page.evaluate("location.hash")
        assert wrong == []
