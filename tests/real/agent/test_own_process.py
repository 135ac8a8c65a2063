"""An agent as operators start it: a process without what was only needed to read its settings."""

import asyncio
import os
import signal
from pathlib import Path

from lab.grid.processes import children
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from tests.real.plain_agents import eventually

LEFT_BEHIND = ("pydantic_core", "_rust.abi3")
"""Parts of the names of libraries that a process has mapped when it has imported them."""


def looked_into(pid):
    """The files that a process has mapped, and its command line."""
    process = Path(f"/proc/{pid}")
    return (process / "maps").read_text(), (process / "cmdline").read_bytes().split(b"\0")


async def test_it_keeps_its_process_id_and_none_of_what_read_its_settings(tmp_path):
    async with BrokerProcess(tmp_path / "broker") as broker:
        config = AgentConfig(1, broker.url, {})
        async with AgentProcess(tmp_path / "agent", config, children.spawn) as agent:
            mapped, command = looked_into(agent.pid)

            assert (await agent.status())["id"] == 1
            assert [name for name in LEFT_BEHIND if name in mapped] == []
            assert command[-4:-1] == [b"run", b"-c", str(agent.config_path).encode()]


async def test_it_reads_its_settings_again_and_refuses_what_is_wrong(tmp_path):
    async with BrokerProcess(tmp_path / "broker") as broker:
        config = AgentConfig(1, broker.url, {})
        async with AgentProcess(tmp_path / "agent", config, children.spawn) as agent:
            told = agent.config_path.read_text()

            async def read_again(text, readings):
                agent.config_path.write_text(text)
                os.kill(agent.pid, signal.SIGHUP)
                return await eventually(
                    agent,
                    lambda status: status["configuration"]["readings"] == readings,
                    "it was read",
                )

            await read_again(told + "\n[mesh]\nredundancy = 0\n", 1)
            await eventually(
                agent,
                lambda status: "redundancy" in (status["configuration"]["refused"] or ""),
                "what is wrong is told",
            )
            await read_again(told + '\n[[neighbours]]\nurl = "mqtt://127.0.0.1:9"\n', 2)
            await eventually(
                agent, lambda status: status["configuration"]["refused"] is None, "it is right"
            )
            assert '"changed": ["neighbours' in agent.log_path.read_text()


async def test_what_is_wrong_at_the_start_ends_it_in_one_line(tmp_path):
    state, config, log = (tmp_path / name for name in ("state", "agent.toml", "log"))
    state.write_text("in the way")
    config.write_text(AgentConfig(1, "mqtt://127.0.0.1:9", {}).toml(state))

    agent = children.spawn(children.python("federator", "run", "-c", str(config)), log=log)
    code = await asyncio.to_thread(agent.wait, 30)

    (line,) = log.read_text().splitlines()
    assert code == 73
    assert line.startswith("federator: ")
    assert str(state) in line
