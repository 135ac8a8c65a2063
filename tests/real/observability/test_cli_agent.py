"""The verbs against real agents on real brokers, as an operator would use them."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.ports import free_ports
from tests.tcp_server import hang_up, serving

TEST_SECONDS_MAX = 180.0
POLL_SECONDS = 0.1

Process = asyncio.subprocess.Process


async def start(*arguments: str) -> Process:
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
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def agent(config: Path, *options: str) -> AsyncIterator[Process]:
    """A running agent that leaves when the block ends."""
    process = await start("run", "-c", str(config), *options)
    assert process.stderr is not None
    log = asyncio.create_task(process.stderr.read())
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await process.wait()
            text = (await log).decode()
    assert process.returncode == 0, text
    assert "Traceback" not in text, text
    assert all(json.loads(line)["event"] for line in text.splitlines()), text


def configuration(folder: Path, id: int, broker: BrokerProcess, *neighbours: BrokerProcess) -> Path:
    path = folder / f"federator-{id}.toml"
    lines = [
        f'state_dir = "{folder}/state-{id}"',
        'security = "open"',
        "[broker]",
        f"id = {id}",
        f'url = "{broker.url}"',
    ]
    for neighbour in neighbours:
        lines += ["[[neighbours]]", f'url = "{neighbour.url}"']
    lines += ["[http]", "port = 0", "[log]", 'format = "json"', "[discovery]", 'filters = ["a/#"]']
    lines += ["[links]", "hello_interval_ms = 200", "hello_timeout_ms = 2000"]
    path.write_text("\n".join([*lines, ""]))
    return path


async def until(condition: Callable[[dict[str, object]], bool], config: Path) -> dict[str, object]:
    """Ask for the status until it is as wanted."""
    status: dict[str, object] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TEST_SECONDS_MAX):
            while True:
                code, out, _ = await ran("status", "--json", "-c", str(config))
                if code in (0, 1, 2):
                    status = json.loads(out)
                    if condition(status):
                        return status
                await asyncio.sleep(POLL_SECONDS)
    raise AssertionError(status)


def meets(status: dict[str, object]) -> bool:
    """Whether the two agents share the mesh of the configured filter."""
    meshes = status["meshes"]
    assert isinstance(meshes, list)
    return any(m["filter"] == "a/#" and m["next_hops"] for m in meshes)


async def test_the_verbs_tell_the_same_story_of_two_agents(start_broker, tmp_path):
    one, two = await start_broker(), await start_broker()
    first = configuration(tmp_path, 1, one, two)
    second = configuration(tmp_path, 2, two)  # is dialled back
    async with agent(first), agent(second):
        status = await until(meets, second)
        await until(meets, first)
        text = await ran("status", "-c", str(second))
        routes = await ran("status", "--routes", "-c", str(second))
        explained = await ran("explain", "a/b", "-c", str(second))
        nowhere = await ran("explain", "$SYS/x", "-c", str(second))
        drawn = await ran("topology", "--filter", "a/#", "-c", str(second))
        state = tmp_path / "state.json"
        agents = [
            {"agent_http": int((tmp_path / f"state-{id}" / "http.port").read_text())}
            for id in (1, 2)
        ]
        state.write_text(json.dumps({"brokers": agents}))
        whole = await ran("topology", "--format", "json", "--state", str(state))
        no_topic = await ran("explain", "a/#", "-c", str(second))
        seen = await ran("top", "--once", "--every", "0.2", "--state", str(state))
        archive = tmp_path / "diag.tar.gz"
        packed = await ran("diag", "-c", str(second), "--topic", "a/b", "-o", str(archive))

    assert (status["id"], status["ready"]) == (2, True)
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


async def test_a_live_agent_can_be_scraped_and_names_no_topic_or_client(start_broker, tmp_path):
    broker = await start_broker()
    config = configuration(tmp_path, 1, broker)

    async with agent(config):
        await until(lambda told: told["ready"] is True, config)
        port = int((tmp_path / "state-1" / "http.port").read_text())
        pages = {}
        for page in ("/metrics", "/healthz", "/readyz"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {page} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            pages[page] = (await reader.read()).decode()
            writer.close()

    assert all(answer.startswith("HTTP/1.1 200 OK\r\n") for answer in pages.values())
    exposition = pages["/metrics"].partition("\r\n\r\n")[2]
    families = {family.name: family for family in text_string_to_metric_families(exposition)}
    assert families["federator_ready"].samples[0].value == 1
    assert families["federator_control_messages_received"].type == "counter"
    assert "a/#" not in exposition
    assert "federator-1-" not in exposition


async def test_an_agent_without_its_broker_runs_and_says_why_it_is_not_ready(
    start_broker, tmp_path
):
    broker = await start_broker()
    await broker.stop()
    config = configuration(tmp_path, 1, broker)

    async with agent(config):
        await until(lambda told: "connection refused" in str(told["ready_reason"]), config)
        code, out, _ = await ran("status", "-c", str(config))
        await broker.start()
        await until(lambda told: told["ready"] is True, config)

    assert code == 1
    assert "NOT READY: " in out


async def test_a_second_agent_on_one_state_folder_is_75_and_disturbs_nothing(
    start_broker, tmp_path
):
    config = configuration(tmp_path, 1, await start_broker())

    async with agent(config):
        before = await until(lambda told: told["ready"] is True, config)
        code, out, err = await ran("run", "-c", str(config))
        after = await until(lambda told: told["ready"] is True, config)

    assert (code, out) == (75, "")
    assert err.startswith("federator: ")
    assert err.count("\n") == 1
    assert before["epoch"] == after["epoch"]


async def test_a_taken_port_is_69_in_one_line(start_broker, tmp_path):
    config = configuration(tmp_path, 1, await start_broker())
    async with serving(hang_up) as port:
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))

        code, _, err = await ran("run", "-c", str(config))

    assert code == 69
    assert err.splitlines()[-1].startswith(f"federator: http.port = {port} on 127.0.0.1: ")
    assert "Traceback" not in err


async def test_a_state_folder_that_cannot_be_made_is_73(start_broker, tmp_path):
    config = configuration(tmp_path, 1, await start_broker())
    (tmp_path / "state-1").write_text("a file stands in the way")

    code, out, err = await ran("run", "-c", str(config))

    assert (code, out) == (73, "")
    assert err.startswith("federator: state_dir")
    assert err.count("\n") == 1


async def test_fail_fast_without_a_broker_is_69(tmp_path, start_broker):
    broker = await start_broker()
    config = configuration(tmp_path, 1, broker)
    await broker.stop()

    code, out, err = await ran("run", "--fail-fast", "-c", str(config))

    assert (code, out) == (69, "")
    assert err.startswith(f"federator: {broker.url}: connection refused")


async def test_fail_fast_with_a_wrong_password_is_77(tmp_path, start_broker):
    passwords = tmp_path / "passwords"
    make = await asyncio.create_subprocess_exec(
        "mosquitto_passwd", "-b", "-c", str(passwords), "agent", "right"
    )
    assert await make.wait() == 0
    passwords.chmod(0o644)
    lines = (f"password_file {passwords}",)
    broker = await start_broker(allow_anonymous=False, extra_config=lines)
    config = configuration(tmp_path, 1, broker)
    text = config.read_text().replace("id = 1", 'id = 1\nusername = "agent"\npassword = "wrong"')
    config.write_text(text)
    config.chmod(0o600)

    code, out, err = await ran("run", "--fail-fast", "-c", str(config))

    assert (code, out) == (77, "")
    assert err.endswith("check broker.username and password\n")
    assert '"wrong"' not in err


async def test_fail_fast_without_log_topics_is_78_with_the_lines_to_add(tmp_path, start_broker):
    config = configuration(tmp_path, 1, await start_broker(log_topics=False))

    code, out, err = await ran("run", "--fail-fast", "-c", str(config))

    assert (code, out) == (78, "")
    assert err.count("\n") == 1
    assert "log_dest topic; " in err
    assert "log_type subscribe; log_type unsubscribe" in err


async def test_fail_fast_starts_where_nothing_is_wrong(tmp_path, start_broker):
    config = configuration(tmp_path, 1, await start_broker())

    async with agent(config, "--fail-fast"):
        await until(lambda told: told["ready"] is True, config)


@pytest.mark.parametrize("verb", [("status",), ("topology",), ("explain", "a")])
async def test_a_question_to_no_agent_is_69_in_one_line(verb, tmp_path):
    (port,) = free_ports(1)

    code, out, err = await ran(*verb, "--url", f"http://127.0.0.1:{port}")

    assert (code, out) == (69, "")
    assert err == (
        f"federator: http://127.0.0.1:{port}: connection refused: is `federator run` up?\n"
    )


async def test_a_question_to_another_server_is_69_in_one_line():
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    async with serving(reply) as port:
        code, out, err = await ran("status", "--url", f"http://127.0.0.1:{port}")

    assert (code, out) == (69, "")
    assert err.endswith("not an answer of an agent: check the URL\n")
