"""A real steerer at real brokers, with the words of agents: plans that come, stay, go, and wait."""

import asyncio
import json
import os

import pytest

from federator.config.security import KeySettings, TrustSettings
from federator.runtime.trust.words import FollowedWords
from lab.grid.processes.children import python
from lab.grid.processes.daemons import SteererProcess
from tests.planner.steering.world import square
from tests.real.polling import until
from tests.real.steering.stand_in import standing
from tests.real.trust.test_signed import Office, keys

pytestmark = pytest.mark.slow

QUICK = "[steering]\nvalid_ms = 6000\n"


@pytest.fixture
async def brokers(start_broker):
    return {id_: await start_broker() for id_ in (1, 2, 3, 4)}


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


def said(process, event):
    lines = (json.loads(line) for line in process.log_lines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


async def test_each_broker_has_the_trees_that_pass_it_until_the_steerer_leaves(brokers, tmp_path):
    async with standing(square(), brokers) as agents:
        steerer = SteererProcess(tmp_path / "s", brokers[1].url, sections=QUICK)
        await steerer.start()
        try:
            await until(lambda: agents[1].trees, "a tree is planned")
            await until(lambda: agents[3].trees and agents[4].trees, "all in it have it")
            (tree,) = agents[1].trees
            assert tree.edges == ((1, 3), (3, 4))
            assert agents[3].trees == agents[4].trees == (tree,)
            assert agents[2].held is not None
            assert agents[2].trees == ()

            number = agents[1].plans[-1].number
            await until(lambda: agents[1].plans[-1].number > number + 2, "plans are renewed")
            await until(lambda: said(steerer, "steer.measured"), "what came of it is told")
            status = await steerer.status()
            assert status["ready"]
            assert status["steers"]
            assert status["decisions"][0]["fullest_before"] >= 1.0
            assert status["decisions"][0]["fullest_measured"] <= 0.95
            assert all(not agent.refused for agent in agents.values())
        finally:
            assert await steerer.stop()
        await until(lambda: all(each.cleared for each in agents.values()), "plans are taken back")
        assert "Traceback" not in steerer.log_path.read_text()


@pytest.mark.full
async def test_a_second_steerer_waits_and_goes_on_when_the_first_is_killed(brokers, tmp_path):
    async with standing(square(), brokers) as agents:
        first = SteererProcess(tmp_path / "1", brokers[1].url, sections=QUICK)
        second = SteererProcess(tmp_path / "2", brokers[4].url, sections=QUICK)
        await first.start()
        try:
            await until(lambda: agents[1].trees, "a tree is planned")
            (tree,) = agents[1].trees
            await second.start()
            await until(lambda: said(second, "steer.waits"), "the second waits")
            assert agents[1].held.steerer == (await first.status())["steerer"]

            first.kill9()

            name = (await second.status())["steerer"]
            await until(
                lambda: agents[1].held is not None and agents[1].held.steerer == name,
                "the second goes on",
            )
            assert agents[1].trees == (tree,), "and keeps the trees"
        finally:
            await second.stop()
            await first.stop()


def agents_words(office, id_):
    """As agents with keys say and judge words."""
    own = office.folder / f"agent-{id_}.key"
    keys("issue", "--dir", office.folder, "--broker", id_, "--out", own)
    trusted = TrustSettings(federation_files=(office.folder / "federation.pub",))
    read = KeySettings(agent_file=own).agent_keys
    return FollowedWords("fed", trusted, own_file=own, read_own=read, required=["steerer"])


async def once(*options):
    """Exit code, answer and log of a steerer that decides once."""
    process = await asyncio.create_subprocess_exec(
        *python("federator", "steer", "--once", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "FEDERATOR_HTTP__PORT": "0"},
    )
    told, log = await process.communicate()
    return process.returncode, told.decode(), log.decode()


async def test_a_dry_run_says_what_it_would_move_and_moves_nothing(brokers):
    async with standing(square(), brokers) as agents:
        code, told, log = await once("--broker", brokers[1].url, "--dry-run")

        assert code == 0, log
        assert "leaves 1 to 2 (120% full)" in told
        assert ": by 1 to 3, 3 to 4: " in told
        assert all(not plan.trees for agent in agents.values() for plan in agent.plans)
        await until(lambda: all(each.cleared for each in agents.values()), "plans are taken back")


async def test_where_there_are_keys_a_steerers_key_is_obeyed_and_its_end_is_known(
    brokers, tmp_path, office
):
    keys("issue", "--dir", office.folder, "--role", "steerer", "--name", "s")
    own, public = (office.folder / name for name in ("steerer-s.key", "federation.pub"))
    signing = f"[keys]\nsteerer_file = '{own}'\nfederation_files = ['{public}']\n"

    async with standing(square(), brokers, lambda id_: agents_words(office, id_)) as agents:
        unsigned = f"[keys]\nfederation_files = ['{public}']\n"
        stranger = SteererProcess(tmp_path / "x", brokers[1].url, sections=unsigned)
        steerer = SteererProcess(tmp_path / "s", brokers[1].url, sections=QUICK + signing)
        await stranger.start()
        await until(lambda: agents[1].refused, "a plan without a key is refused")
        assert "keys.steerer_file" in (await stranger.status())["ready_reason"]
        await stranger.stop()
        await steerer.start()
        try:
            await until(lambda: agents[1].trees, "a tree is planned")
            assert agents[1].held.steerer == "s"
        finally:
            await steerer.stop()
        assert agents[1].trees == ()


async def test_a_broker_that_refuses_plans_is_named(start_broker, tmp_path):
    acl = tmp_path / "acl"
    rights = ["readwrite #", "read $SYS/#", "read $fed/fed/plan"]
    rights += [f"readwrite $fed/fed/{name}" for name in ("guide", "load")]
    acl.write_text("".join(f"topic {right}\n" for right in rights))
    brokers = {id_: await start_broker(extra_config=(f"acl_file {acl}",)) for id_ in (1, 4)}
    async with standing(square(), brokers):
        steerer = SteererProcess(tmp_path / "s", brokers[1].url)
        await steerer.start()
        try:
            await until(lambda: said(steerer, "steer.plan_refused"), "it is said")
            assert "doctor --acl" in (await steerer.status())["ready_reason"]
        finally:
            await steerer.stop()


@pytest.mark.full
async def test_without_capacities_once_says_how_to_set_them(brokers):
    world = square()
    world.links = {ends: (cost, None) for ends, (cost, _) in world.links.items()}
    async with standing(world, brokers):
        code, _, log = await once("--broker", brokers[1].url)

    assert code == 78
    last = log.splitlines()[-1]
    assert last.startswith("federator: no link has a capacity")
    assert "[[neighbours]]" in last
