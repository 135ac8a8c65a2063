"""The verbs against real agents on real brokers, as an operator would use them."""

import asyncio
import json
import sys

import pytest

from lab.grid.processes.ports import free_ports
from tests.real.plain_agents import PlainConfig, eventually, linked
from tests.real.polling import until
from tests.tcp_server import hang_up, serving

TEST_SECONDS_MAX = 180.0
WANTS = '[discovery]\nfilters = ["a/#"]\n'


async def start(*arguments):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "federator", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ran(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a verb that ends."""
    process = await start(*arguments)
    async with asyncio.timeout(TEST_SECONDS_MAX):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def run(tmp_path):
    """Runs an agent of the broker at a URL that ends by itself."""

    async def run(url, *options, http_port=0):
        path = tmp_path / "federator.toml"
        text = PlainConfig(1, url).toml(tmp_path / "state")
        path.write_text(text.replace("port = 0", f"port = {http_port}"))
        return await ran("run", "-c", str(path), *options)

    return run


def meets(status):
    """Whether the two agents share the mesh of the configured filter."""
    return any(m["filter"] == "a/#" and m["next_hops"] for m in status["meshes"])


async def test_the_verbs_tell_the_same_story_of_two_agents(plain, tmp_path):
    one, two = await plain.broker(), await plain.broker()
    first = await plain.agent(1, one, two.url, more=WANTS)
    second = await plain.agent(2, two, more=WANTS)  # is dialled back
    for agent in (second, first):
        await eventually(agent, meets, "they share a mesh")
    asks = ("-c", str(second.config_path))
    status = await ran("status", "--json", *asks)
    text = await ran("status", *asks)
    routes = await ran("status", "--routes", *asks)
    explained = await ran("explain", "a/b", *asks)
    nowhere = await ran("explain", "$SYS/x", *asks)
    no_topic = await ran("explain", "a/#", *asks)
    drawn = await ran("topology", "--filter", "a/#", *asks)
    state = tmp_path / "state.json"
    agents = [{"agent_http": agent.http_port} for agent in (first, second)]
    state.write_text(json.dumps({"brokers": agents}))
    whole = await ran("topology", "--format", "json", "--state", str(state))
    seen = await ran("top", "--once", "--every", "0.2", "--state", str(state))
    archive = str(tmp_path / "diag.tar.gz")
    packed = await ran("diag", *asks, "--topic", "a/b", "-o", archive)

    assert json.loads(status[1])["id"] == 2
    assert (text[0], text[2]) == (0, "")
    assert "broker 2 of federation fed: ready" in text[1]
    assert "a/#" in routes[1]
    assert explained[1].startswith("a/b: to 1: ")
    assert nowhere[1].startswith("$SYS/x: nowhere: ")
    assert "core 1, members 2" in drawn[1]
    assert "2 -> 1" in drawn[1]
    assert one.url in drawn[1]  # told by broker 1, which was not asked
    assert [broker["asked"] for broker in json.loads(whole[1])["brokers"]] == [True, True]
    assert "2 of 2 ready" in seen[1]
    assert "1 → 2" in seen[1]
    assert packed[0] == 0, packed
    for part in ("status.json", "routes.json", "metrics-2.txt", "explain-1.json", "config.json"):
        assert part in packed[1]
    assert (no_topic[0], no_topic[1]) == (69, "")
    assert "give one topic" in no_topic[2]


async def test_a_second_agent_on_one_state_folder_is_75_and_disturbs_nothing(plain):
    agent = await plain.agent(1, await plain.broker())
    before = await eventually(agent, linked(), "ready")

    code, out, err = await ran("run", "-c", str(agent.config_path))

    after = await eventually(agent, linked(), "still ready")
    assert (code, out) == (75, "")
    assert err.startswith("federator: ")
    assert err.count("\n") == 1
    assert before["epoch"] == after["epoch"]


async def test_a_taken_port_is_69_in_one_line(plain, run):
    broker = await plain.broker()
    async with serving(hang_up) as port:
        code, _, err = await run(broker.url, http_port=port)

    assert code == 69
    assert err.splitlines()[-1].startswith(f"federator: http.port = {port} on 127.0.0.1: ")
    assert "Traceback" not in err


async def test_fail_fast_without_a_broker_is_69(run):
    url = f"mqtt://127.0.0.1:{free_ports(1)[0]}"

    code, out, err = await run(url, "--fail-fast")

    assert (code, out) == (69, "")
    assert err.startswith(f"federator: {url}: connection refused")


async def test_fail_fast_without_log_topics_is_78_with_the_lines_to_add(plain, run):
    broker = await plain.broker(log_topics=False)

    code, out, err = await run(broker.url, "--fail-fast")

    assert (code, out) == (78, "")
    assert err.count("\n") == 1
    assert "log_dest topic; " in err
    assert "log_type subscribe; log_type unsubscribe" in err


async def test_fail_fast_starts_where_nothing_is_wrong_and_sigterm_ends_it_with_0(plain, tmp_path):
    broker, config = await plain.broker(), tmp_path / "federator.toml"
    config.write_text(PlainConfig(1, broker.url).toml(tmp_path / "state"))
    process = await start("run", "-c", str(config), "--fail-fast")

    async def ready():
        return (await ran("status", "-c", str(config)))[0] == 0

    try:
        await until(ready, "ready", deadline_s=TEST_SECONDS_MAX)
    finally:
        process.terminate()
    async with asyncio.timeout(TEST_SECONDS_MAX):
        _, log = await process.communicate()
    assert process.returncode == 0, log
    assert all(json.loads(line)["event"] for line in log.splitlines()), log


@pytest.mark.parametrize("verb", [("status",), ("topology",), ("explain", "a")])
async def test_a_question_to_no_agent_is_69_in_one_line(verb):
    (port,) = free_ports(1)

    code, out, err = await ran(*verb, "--url", f"http://127.0.0.1:{port}")

    assert (code, out) == (69, "")
    assert err == (
        f"federator: http://127.0.0.1:{port}: connection refused: is `federator run` up?\n"
    )


async def test_a_question_to_another_server_is_69_in_one_line():
    async def reply(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    async with serving(reply) as port:
        code, out, err = await ran("status", "--url", f"http://127.0.0.1:{port}")

    assert (code, out) == (69, "")
    assert err.endswith("not an answer of an agent: check the URL\n")
