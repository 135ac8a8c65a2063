"""Bridges as people publish them, and the federation that ``init --from-bridges`` writes for them.

First real Mosquitto bridges, then agents instead: every publication must arrive where it did, under
the name it had there, but for what the verb said would not. docs/how-to/migrate-from-bridges.md.
"""

import asyncio
import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner

from federator.cli.setup.init import command as init_command
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.ports import free_ports
from tests.certificates import make_keys, tls_listener
from tests.real.client import Client
from tests.real.flow import running
from tests.real.logins import SECRET, write_passwords, write_secret
from tests.real.plain_agents import DEEP, QUICK, Plain
from tests.real.polling import DEADLINE_S

NEAR, FAR, OTHER = "near", "far", "other"
IDS = {NEAR: 7, FAR: 1, OTHER: 2}
QUIET_S = 0.5


@dataclass(frozen=True)
class Case:
    """Bridges of the near broker, what is published, and what then arrives elsewhere.

    Attributes:
        bridges: Lines of each, by the broker that it leads to.
        arrives: ``{(where published, topic): [(where it arrives, topic)]}``; nothing else does.
        lost: Of these, what the verb said has no counterpart, by words of what it said.
        instead: What arrives instead, which it said as well.
    """

    bridges: dict[str, tuple[str, ...]]
    arrives: dict[tuple[str, str], list[tuple[str, str]]]
    lost: dict[tuple[str, str], str] = field(default_factory=dict)
    instead: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    names: str = "there"


def out(topic, there, where=FAR):
    return {(NEAR, topic): [(where, there)]}


def back(topic, here, where=FAR):
    return {(where, topic): [(NEAR, here)]}


def nothing(*published):
    return {each: [] for each in published}


CASES = {
    "everything up, with the site's name": Case(
        {FAR: ('topic # out 1 "" site-a/',)},
        out("a", "site-a/a") | out("x/y", "site-a/x/y") | nothing((FAR, "a"), (FAR, "site-a/a")),
    ),
    "everything both ways": Case(
        {FAR: ("topic # both 1",)}, out("a/b", "a/b") | back("a/b", "a/b") | back("c", "c")
    ),
    "readings up, commands down": Case(
        {FAR: ("topic sensors/# out 1", "topic commands/# in 1")},
        out("sensors/1", "sensors/1") | back("commands/1", "commands/1") | out("sensors", "sensors")
        | nothing((FAR, "sensors/1"), (NEAR, "commands/1"), (NEAR, "other"), (FAR, "other")),
    ),
    "up and down below one prefix": Case(
        {FAR: ('topic sensors/# out 1 "" site-a/', 'topic commands/# in 1 "" site-a/')},
        out("sensors/1", "site-a/sensors/1") | back("site-a/commands/1", "commands/1")
        | nothing((FAR, "commands/1"), (NEAR, "commands/1"), (FAR, "site-a/sensors/1")),
    ),
    "up below a prefix, down without": Case(
        {FAR: ('topic sensors/# out 1 "" site-a/', "topic commands/# in 1")},
        out("sensors/1", "site-a/sensors/1") | out("sensors", "site-a/sensors")
        | back("commands/1", "commands/1") | nothing((FAR, "site-a/commands/1"), (NEAR, "x")),
    ),
    "a remote tree hung below a local prefix": Case(
        {FAR: ('topic # in 0 hub/ ""',)},
        back("a/b", "hub/a/b") | back("hub/a", "hub/hub/a") | nothing((NEAR, "hub/a"), (NEAR, "a")),
    ),
    "a local prefix taken away": Case(
        {FAR: ('topic # out 1 to-cloud/ ""',)},
        out("to-cloud/a/b", "a/b") | nothing((NEAR, "a/b"), (FAR, "a/b")),
    ),
    "one prefix for another, both ways": Case(
        {FAR: ("topic # both 2 home/ eu/home/",)},
        out("home/a", "eu/home/a") | back("eu/home/b", "home/b")
        | nothing((NEAR, "a"), (FAR, "home/a"), (NEAR, "eu/home/a")),
    ),
    "nested prefixes, the longer first": Case(
        {FAR: ("topic # both 1 plant/l1/ special/l1/", "topic # both 1 plant/ eu/plant/")},
        out("plant/l1/a", "special/l1/a") | out("plant/l2/a", "eu/plant/l2/a")
        | back("special/l1/a", "plant/l1/a") | back("eu/plant/l2/a", "plant/l2/a"),
    ),
    "nested prefixes, the longer behind: what goes out has another name": Case(
        {FAR: ("topic # both 1 plant/ eu/plant/", "topic # in 1 plant/l1/ special/l1/")},
        out("plant/l1/a", "eu/plant/l1/a") | out("plant/l2/a", "eu/plant/l2/a")
        | back("special/l1/a", "plant/l1/a"),
        lost={(NEAR, "plant/l1/a"): "was eu/plant/l1/"},
    ),
    "all up with a prefix, some down without: these go up no more": Case(
        {FAR: ('topic # out 1 "" site-a/', "topic commands/# in 1")},
        out("a", "site-a/a") | out("commands/1", "site-a/commands/1")
        | back("commands/2", "commands/2"),
        lost={(NEAR, "commands/1"): "was site-a/commands/"},
    ),
    "another prefix up than down: the second has no counterpart": Case(
        {FAR: ('topic # out 1 "" up/', 'topic # in 1 "" down/')},
        out("a", "up/a") | back("down/b", "b"),
        lost={(FAR, "down/b"): 'topic # in 1 "" down/: # here is up/#'},
    ),
    "single topics": Case(
        {FAR: ('topic temperature out 0 "" home/', "topic command in", 'topic "" out 0 a/b c/d')},
        out("temperature", "home/temperature") | back("command", "command") | out("a/b", "c/d")
        | nothing((NEAR, "a"), (FAR, "temperature"), (NEAR, "a/c")),
    ),
    "wildcards within": Case(
        {FAR: ('topic +/temp out 1 "" x/', 'topic +/cmd in 1 "" x/')},
        out("a/temp", "x/a/temp") | back("x/a/cmd", "a/cmd")
        | nothing((NEAR, "a/cmd"), (FAR, "x/a/temp"), (NEAR, "a/b/temp")),
    ),
    "Tasmota: three trees": Case(
        {FAR: ("topic tele/+/SENSOR out 0", "topic stat/# out 1", "topic cmnd/# in 1")},
        out("tele/plug/SENSOR", "tele/plug/SENSOR") | out("stat/plug", "stat/plug")
        | back("cmnd/plug/POWER", "cmnd/plug/POWER") | nothing((NEAR, "tele/plug/LWT")),
    ),
    "Zigbee2MQTT and Home Assistant's discovery": Case(
        {FAR: ("topic zigbee2mqtt/# both 0", 'topic homeassistant/# out 0 "" cabin/')},
        out("zigbee2mqtt/lamp", "zigbee2mqtt/lamp")
        | back("zigbee2mqtt/lamp/set", "zigbee2mqtt/lamp/set")
        | out("homeassistant/light", "cabin/homeassistant/light"),
    ),
    "topics that begin with a slash": Case(
        {FAR: ('topic /sensors/# out 1 "" /site',)},
        out("/sensors/1", "/site/sensors/1") | nothing((NEAR, "sensors/1"), (NEAR, "/x")),
    ),
    "what starts with $": Case(
        {FAR: ("topic clients/total in 0 far/ $SYS/broker/", "topic a/# out 1")},
        out("a/b", "a/b"),
    ),
    "a bridge each way out": Case(
        {FAR: ("topic sensors/# out 1",), OTHER: ("topic alarms/# both 1",)},
        out("sensors/1", "sensors/1") | out("alarms/1", "alarms/1", OTHER)
        | back("alarms/2", "alarms/2", OTHER)
        | nothing((FAR, "alarms/3"), (OTHER, "sensors/3")),
    ),
    "through us": Case(
        {FAR: ("topic a/# both 1",), OTHER: ("topic # both 1",)},
        {(NEAR, "a/1"): [(FAR, "a/1"), (OTHER, "a/1")],
         (FAR, "a/2"): [(NEAR, "a/2"), (OTHER, "a/2")],
         (OTHER, "a/3"): [(NEAR, "a/3"), (FAR, "a/3")],
         (OTHER, "b"): [(NEAR, "b")], (FAR, "c"): []},
    ),
    "a prefix for one, none for another: the second has no counterpart": Case(
        {FAR: ('topic # out 1 "" site-a/',), OTHER: ("topic # out 1",)},
        {(NEAR, "a"): [(FAR, "site-a/a"), (OTHER, "a")]},
        lost={(NEAR, "a"): "topic # out 1: # here is site-a/#"},
        instead={(NEAR, "a"): [(FAR, "site-a/a")]},
    ),
    "a hub that fetches its sites": Case(
        {FAR: ('topic # in 1 sites/a/ ""',), OTHER: ('topic # both 1 sites/b/ ""',)},
        back("x", "sites/a/x") | back("x", "sites/b/x", OTHER) | out("sites/b/y", "y", OTHER)
        | nothing((NEAR, "sites/a/y"), (NEAR, "z")),
        names="here",
    ),
}  # fmt: skip


class Bridged(Client):
    """Subscribes everything at one broker and publishes there; counts what came from elsewhere."""

    def __init__(self, broker, where):
        login = ("tester", SECRET.encode()) if where == FAR else ()
        super().__init__(broker.port, f"tester-{where}", "#", login=login)
        self.where = where
        self.came = Counter()

    def publish(self, topic, number):
        self.link.publish(topic, json.dumps([self.where, topic, number]).encode(), qos=1)

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            if packet.topic == "far/clients/total":
                continue  # what the far broker says of itself
            where, topic, number = json.loads(packet.payload)
            if where != self.where:
                self.came[where, topic, packet.topic, number] += 1


async def goes(published, clients, wanted):
    """Publish it all, again and again, until ``wanted`` is there, and once more."""
    number = 0

    def came(of=None):
        return {
            (where, topic, client.where, name)
            for client in clients.values()
            for where, topic, name, round in client.came
            if of in (None, round)
        }

    async with asyncio.timeout(3 * DEADLINE_S):
        while True:
            number += 1
            for where, topic in published:
                clients[where].publish(topic, number)
            for _ in range(20):
                await asyncio.sleep(0.1)
                if wanted <= came(number):
                    await asyncio.sleep(QUIET_S)
                    counts = [n for client in clients.values() for n in client.came.values()]
                    assert set(counts) <= {1}, "nothing comes twice"
                    return came()


def flat(arrives):
    return {(*origin, *goal) for origin, goals in arrives.items() for goal in goals}


@dataclass
class Written:
    """A configuration that the verb wrote, for ``AgentProcess``."""

    id: int
    text: str

    def toml(self, state_dir):
        return self.text


def init(folder, conf, near, case):
    """What the verb writes for ``conf``, and what it says."""
    remotes = [f"--remote=to-{where}={IDS[where]}" for where in case.bridges]
    told = ["--id=7", f"--broker={near.url}", f"--advertise={near.url}", "--keys=open"]
    more = [f"--from-bridges={conf}", f"--names={case.names}", "--http-port=0", "--json"]
    place = [f"--config={folder / 'init.toml'}", f"--state-dir={folder / 'state'}"]
    done = CliRunner().invoke(init_command, [*place, *told, *more, *remotes])
    assert done.exit_code == 0, done.output
    return (folder / "init.toml").read_text(), json.loads(done.output)


def sections(told, address):
    """What it says that the agent at ``address`` needs, as TOML."""
    found = [line.removeprefix(f"{address}: ") for line in told["at_other_agents"]
             if line.startswith(f"{address}: ")]  # fmt: skip
    lines = [re.fullmatch(r"(\[\w+\]) (.*?)(, for clients .*)?", each) for each in found]
    return "\n".join(f"{line[1]}\n{line[2]}" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_what_arrives_where_with_bridges_arrives_there_in_the_federation(tmp_path, name):
    case = CASES[name]
    keys = make_keys(tmp_path)
    passwords = write_passwords(tmp_path / "passwords", "tester", "bridge", "agent")
    secret = write_secret(tmp_path / "secret")
    (tls,) = free_ports(1)
    lines = (*QUICK, *DEEP, "per_listener_settings false", f"password_file {passwords}")
    async with Plain(tmp_path) as plain:
        far = await plain.broker(
            extra_config=(*lines, *tls_listener(keys, tls)), allow_anonymous=False
        )
        other = await plain.broker()
        address = {FAR: f"127.0.0.1:{tls}", OTHER: f"127.0.0.1:{other.port}"}
        bridges = []
        for where, topics in case.bridges.items():
            bridges += [f"connection to-{where}", f"address {address[where]}", *topics]
            bridges += ["restart_timeout 1"]
            if where == FAR:
                bridges += ["remote_username bridge", f"remote_password {SECRET}"]
                bridges += [f"bridge_cafile {keys}/broker.pem"]
                bridges += [f"bridge_certfile {keys}/client.pem"]
                bridges += [f"bridge_keyfile {keys}/client.key"]
        near = await plain.broker(extra_config=(*QUICK, *DEEP, *bridges))
        brokers = {NEAR: near, FAR: far, OTHER: other}
        clients = {where: Bridged(broker, where) for where, broker in brokers.items()}
        async with running(*clients.values()):
            wanted = flat(case.arrives)
            assert await goes(case.arrives, clients, wanted) == wanted

            near._extra_config = (*QUICK, *DEEP)
            await near.restart()
            for client in clients.values():
                client.came.clear()
            conf = tmp_path / "mosquitto.conf"
            conf.write_text("\n".join(bridges) + "\n")
            text, told = init(tmp_path, conf, near, case)
            for where in (FAR, OTHER):
                login = {"username": "agent", "password_file": str(secret)} if where == FAR else {}
                broker = brokers[where]
                more = sections(told, address[where])
                await plain.agent(IDS[where], broker.url, broker=login, more=more)
            agent = AgentProcess(tmp_path, Written(IDS[NEAR], text))
            plain.agents.append(agent)
            await agent.start()

            said = told["without_counterpart"] + told["otherwise_than_before"]
            for origin, words in case.lost.items():
                assert any(words in line for line in said), (origin, said)
            assert len(said) == len(case.lost) + ("$SYS" in str(case.bridges))
            left = {origin: goals for origin, goals in case.arrives.items()
                    if origin not in case.lost}  # fmt: skip
            lost = {origin: [] for origin in case.lost}
            wanted = flat(left | case.instead)
            moved = await goes(left | lost, clients, wanted)
            assert {each for each in moved if (each[0], each[1]) not in lost} == flat(left)
            assert tomllib.loads(text)["share"]["scope"] == "broker"
