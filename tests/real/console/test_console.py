"""A console before real brokers and agents, in a real Chromium."""

import asyncio
import http.client
import json
import re

import pytest
from playwright.async_api import expect

from federator.console.operators import hashed
from lab.console.browser import PATIENCE_MS, PHONE, chromium, opened
from lab.console.pictures import everything_is_up, red_after_kill, refused
from lab.console.stage import NAMES, OPERATOR, PASSWORD, ConsoleStage
from lab.grid.processes.daemons import ConsoleProcess
from tests.real.flow import Subscriber, running
from tests.real.plain_agents import eventually, linked
from tests.real.polling import ASK_S, DEADLINE_S, until
from tests.real.trust.test_signed import Office, keys, refusals

HOSTILE = "<img src=x onerror=alert(1)>{}&amp;"
"""What a client may call itself, and subscribe."""


async def sign_in(page):
    await page.locator("#sign").click()
    await page.locator("#name").fill(OPERATOR)
    await page.locator("#password").fill(PASSWORD)
    await page.locator("#credentials button[type=submit]").click()
    await expect(page.locator("#sign")).to_have_text(f"Sign out {OPERATOR}", timeout=PATIENCE_MS)


def request(console, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", console.http_port, timeout=30)
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


async def asked(console, *arguments, **headers):
    return await asyncio.to_thread(request, console, *arguments, **headers)


async def test_what_the_page_shows_is_what_agents_say(tmp_path):
    async with ConsoleStage(tmp_path, side=2, history="http://127.0.0.1:8650") as stage:
        await stage.client(3, "archive", "plant/#", qos=0)
        await stage.client(1, HOSTILE, HOSTILE, qos=0)
        async with (
            chromium() as browser,
            opened(browser, stage.console.url) as (page, wrong),
        ):
            await everything_is_up(page, brokers=4, links=4)

            # names, states, links
            for id_, agent in stage.agents.items():
                status = await agent.status()
                row = page.locator(f"tr[data-broker='{id_}']")
                await expect(row).to_contain_text(f"{NAMES[id_]} ({id_})")
                await expect(row.locator(".state")).to_have_text("ready")
                drawn = await page.evaluate(f"FederationMap.drawn('b{id_}')")
                assert drawn["label"] == f"{status['name']} ({id_})"
                for link in status["links"]:
                    ends = sorted((id_, link["neighbour"]))
                    shown = page.locator(f"tr[data-link='{ends[0]}-{ends[1]}']")
                    await expect(shown).to_contain_text("200 kbit/s", timeout=PATIENCE_MS)
                    assert link["capacity"] == 200_000
            controller = await stage.agents[0].page("/controller")
            first = controller["brokers"][0]
            await expect(page.locator("#controller")).to_contain_text(
                f"({controller['controller']})"
            )
            await expect(page.locator("tr[data-broker='0']")).to_contain_text(
                f"{NAMES[first['substitutes'][0]]} ({first['substitutes'][0]})"
            )

            # who subscribes where; hostile names are text
            await page.locator("#text").fill("plant/oven")
            await page.locator("#text").press("Enter")
            await expect(page.locator("#found-rows")).to_contain_text("archive")
            await expect(page.locator("#found-rows tr")).to_have_count(1)
            await page.locator("#found").get_by_role("button", name="Explain").click()
            explained = await stage.agents[0].page("/explain?topic=plant/oven")
            await expect(page.locator("#way")).to_contain_text(explained["why"])
            for hop in explained["next_hops"]:
                await expect(page.locator("#way")).to_contain_text(f"{NAMES[hop]} ({hop})")

            # a probe, hop by hop, to the broker whose client wants it
            await page.locator("#found").get_by_role("button", name="Trace").click()
            await expect(page.locator("#way")).to_contain_text("delivers", timeout=PATIENCE_MS)
            await expect(page.locator("#way .done")).to_be_visible()
            assert "hop" in (await page.evaluate("FederationMap.drawn('b3')"))["classes"]

            await page.locator("#found").get_by_role("button", name="Mesh of plant/#").click()
            await expect(page.locator("#way")).to_contain_text("clients at")
            mesh = next(
                each
                for each in (await stage.agents[3].status())["meshes"]
                if each["filter"] == "plant/#"
            )
            await expect(page.locator("#way dd").first).to_have_text(
                f"{NAMES[mesh['core']]} ({mesh['core']})"
            )

            await page.locator("#text").fill(HOSTILE)
            await page.locator("#text").press("Enter")
            await expect(page.locator("#found-rows tr").first).to_contain_text(HOSTILE)
            assert await page.locator("main img, main script").count() == 0

            link = page.get_by_role("link", name="History and reports")
            assert await link.get_attribute("href") == "http://127.0.0.1:8650"
            assert wrong == []


async def test_a_killed_broker_is_red_and_its_death_stands_out(tmp_path):
    async with (
        ConsoleStage(tmp_path) as stage,
        chromium() as browser,
        opened(browser, stage.console.url) as (page, wrong),
    ):
        await everything_is_up(page, brokers=9, links=12)

        await red_after_kill(stage, page)

        death = page.locator("#events li.death", has_text="hall (4) is down")
        await expect(death).to_be_visible(timeout=PATIENCE_MS)
        await expect(page.locator("#tiles")).to_contain_text("8 of 9")
        await expect(page.locator("tr.down[data-link]")).to_have_count(4, timeout=PATIENCE_MS)
        await expect(page.locator("tr[data-broker='4']")).to_contain_text(
            "now:", timeout=PATIENCE_MS
        )

        await stage.brokers[4].start()
        await everything_is_up(page, brokers=9, links=12)

        # an agent that dies beside a living broker is red, too
        stage.agents[4].kill9()
        row = page.locator("tr.down[data-broker='4'] .state.silent")
        await expect(row).to_be_visible(timeout=PATIENCE_MS)
        assert wrong == []


async def test_operators_drain_and_strangers_do_not(tmp_path):
    async with (
        ConsoleStage(tmp_path, side=2) as stage,
        chromium() as browser,
        opened(browser, stage.console.url) as (page, _),
    ):
        await everything_is_up(page, brokers=4, links=4)
        await page.locator("tr[data-broker='3'] button").first.click()
        await expect(page.locator("#detail-title")).to_contain_text("(3)")
        await expect(page.locator("#drain")).to_have_count(0)

        # strangers: without a session, from elsewhere, with a wrong password, under another name
        console = stage.console
        home = f"http://127.0.0.1:{console.http_port}"
        order = json.dumps({"broker": 3, "drain": True})
        said = [
            (await asked(console, "POST", "/api/drain", order, Origin=home))[0].status,
            (await asked(console, "POST", "/api/drain", order))[0].status,
            (await asked(console, "POST", "/api/drain", order, Origin="http://evil"))[0].status,
            (await asked(console, "GET", "/api/me", Host="evil.example"))[0].status,
        ]
        assert said == [401, 403, 403, 421]
        await refused(page)
        await page.locator("#cancel").click()

        await sign_in(page)
        await page.locator("#drain").click()
        row = page.locator("tr[data-broker='3']")
        await expect(row.locator(".state.draining")).to_be_visible(timeout=PATIENCE_MS)
        state = (await stage.agents[3].page("/controller"))["brokers"][3]["state"]
        assert state == "draining"

        # a page elsewhere has the cookie sent at most, and never the token
        cookies = await page.context.cookies()
        assert {(each["httpOnly"], each["sameSite"]) for each in cookies} == {(True, "Strict")}
        values = {each["name"]: each["value"] for each in cookies}
        cookie = f"federator_console={values['federator_console']}"
        forged = await asked(
            console, "POST", "/api/drain", order, Origin=home, Cookie=cookie, X_Console_Token="no"
        )
        assert forged[0].status == 403

        await page.locator("#drain", has_text="Undrain").click()
        await expect(row.locator(".state.ready")).to_be_visible(timeout=PATIENCE_MS)
        await page.locator("#sign").click()
        await expect(page.locator("#sign")).to_have_text("Sign in")
        await expect(page.locator("#drain")).to_have_count(0)

        # whoever guesses is told to wait
        guess = json.dumps({"name": OPERATOR, "password": "open sesame, please"})
        told = [
            (await asked(console, "POST", "/api/sign-in", guess, Origin=home))[0].status
            for _ in range(12)
        ]
        assert 429 in told
        assert 200 not in told


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.few(1)
async def test_the_page_fits_a_phone_and_goes_by_keyboard(tmp_path, scheme):
    async with (
        ConsoleStage(tmp_path, side=2) as stage,
        chromium() as browser,
        opened(browser, stage.console.url, size=PHONE, scheme=scheme) as (page, wrong),
    ):
        await everything_is_up(page, brokers=4, links=4)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(18, 20, 23)") == (scheme == "dark")

        # what a reader of the screen is told: every part has a name
        for role, name in (
            ("search", None), ("application", re.compile("Map of brokers")),
            ("complementary", "Nothing chosen"), ("table", None),
        ):  # fmt: skip
            found = page.get_by_role(role, name=name) if name else page.get_by_role(role)
            assert await found.count() >= 1, role
        before = await page.evaluate("FederationMap.drawn('b0').at.x")
        await page.locator("#map").focus()
        await page.keyboard.press("ArrowLeft")
        assert await page.evaluate("FederationMap.drawn('b0').at.x") != before

        # by keys alone: to the table, to a broker, and the focus stays while the table is renewed
        await page.locator("#brokers").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#detail-title")).to_have_text(f"Broker {NAMES[0]} (0)")
        await page.wait_for_timeout(1_000)
        assert await page.evaluate("document.activeElement.textContent") == f"{NAMES[0]} (0)"
        assert wrong == []


async def test_in_a_signed_federation_agents_answer_an_operators_console_alone(plain, tmp_path):
    office = Office(tmp_path / "office")
    brokers = [await plain.broker() for _ in range(2)]
    for id_, broker in enumerate(brokers, 1):
        more = office.section(id_) + '\nroles = "required"'
        others = [each.url for each in brokers[: id_ - 1]]
        advertise = {"advertise": broker.url}
        await plain.agent(id_, broker, *others, security="signed", broker=advertise, more=more)
    await eventually(plain.agents[0], linked(2), "linked")
    keys("issue", "--dir", office.folder, "--role", "operator", "--name", "ann")
    public = f'[keys]\nfederation_files = ["{office.folder / "federation.pub"}"]\n'
    own = f'{public}operator_file = "{office.folder / "operator-ann.key"}"\n'
    operators = tmp_path / "operators"
    operators.touch(mode=0o600)
    operators.write_text(f"{OPERATOR}:{hashed(PASSWORD)}\n")
    own += f'[operators]\nfile = "{operators}"\n'

    reader = Subscriber(brokers[1].port, "a/#", client_id="reader")
    known = ConsoleProcess(tmp_path / "known", brokers[0].url, sections=own)
    stranger = ConsoleProcess(tmp_path / "stranger", brokers[0].url, sections=public)
    async with running(reader):
        for console in (known, stranger):
            await console.start()
        try:

            async def found(console):
                return json.loads((await asked(console, "GET", "/api/search?text=reader"))[1])

            end_s = asyncio.get_running_loop().time() + DEADLINE_S
            while not (rows := (await found(known)).get("rows")):
                assert asyncio.get_running_loop().time() < end_s, await found(known)
                await asyncio.sleep(ASK_S)
            assert [(each["client"], each["broker"], each["topic"]) for each in rows] == [
                ("reader", 2, "a/#")
            ]
            await until(
                lambda: refusals(plain.agents[0], "without its signature"), "a stranger is refused"
            )
            told = await found(stranger)
            assert (told["rows"], told["asked"]) == ([], 0)

            # an order is signed for the run of the agent that is told
            home = f"http://127.0.0.1:{known.http_port}"
            who = json.dumps({"name": OPERATOR, "password": PASSWORD})
            answer, body = await asked(known, "POST", "/api/sign-in", who, Origin=home)
            session = {
                "Cookie": "; ".join(
                    each.partition(";")[0] for each in answer.headers.get_all("Set-Cookie")
                ),
                "X_Console_Token": json.loads(body)["token"],
            }
            order = json.dumps({"broker": 2, "drain": True})
            done = await asked(known, "POST", "/api/drain", order, Origin=home, **session)
            assert done[0].status == 200, done[1]
            told = await plain.agents[1].page("/controller")
            assert [each["state"] for each in told["brokers"]] == ["up", "draining"]
        finally:
            for console in (known, stranger):
                assert await console.stop()
