"""The doctor against real Mosquittos, healthy and not: does it find it, do its lines cure it?"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from federator.config.reading import load
from federator.config.settings import Settings
from federator.errors import ConfigError
from federator.runtime.doctor.diagnosis import Report, judge
from federator.runtime.doctor.doctor import examine
from federator.runtime.mqtt.probe import RefusedError
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.ports import free_ports
from tests.real.plain_agents import Plain, eventually
from tests.real.trust.test_signed import Office
from tests.tcp_server import serving

DEEP_QUEUE = "max_queued_messages 100000"
FAST_SYSTEM = f"sys_interval 1\n{DEEP_QUEUE}"
SYSTEM_SECONDS_MAX = 15.0


def settings_for(broker: BrokerProcess, *lines: str) -> Settings:
    path = broker.folder.parent / "federator.toml"
    path.write_text("\n".join(["[broker]", "id = 7", f'url = "{broker.url}"', *lines, ""]))
    path.chmod(0o600)
    return load(path, {})


async def report(settings: Settings) -> Report:
    facts = await examine(settings, system_seconds_max=SYSTEM_SECONDS_MAX)
    return judge(facts, settings)


def outcomes(report: Report) -> dict[str, str]:
    """What is not well, but for the ACL, which few of these brokers have."""
    return {f.name: f.outcome for f in report.findings if f.outcome != "ok" and f.name != "ACL"}


async def make_password(folder: Path, name: str, password: str) -> None:
    arguments = ("mosquitto_passwd", "-b", "-c", str(folder / "passwords"), name, password)
    process = await asyncio.create_subprocess_exec(*arguments)
    assert await process.wait() == 0
    (folder / "passwords").chmod(0o644)


async def test_a_broker_as_the_grid_starts_it_can_take_part(start_broker):
    broker = await start_broker(extra_config=(FAST_SYSTEM,))

    found = await report(settings_for(broker))

    assert outcomes(found) == {}
    assert (found.exit_code, found.config_lines, found.acl_lines) == (0, (), ())


async def test_a_broker_with_its_defaults_lacks_log_topics_and_the_lines_cure_it(
    start_broker, tmp_path
):
    sick = await start_broker(log_topics=False, extra_config=(FAST_SYSTEM,))

    found = await report(settings_for(sick))

    assert outcomes(found) == {"log topics": "fail"}
    assert found.exit_code == 78
    assert "log_dest topic" in found.config_lines
    lines: Sequence[str] = found.config_lines
    cured = await start_broker(log_topics=False, extra_config=(FAST_SYSTEM, *lines))
    assert outcomes(await report(settings_for(cured))) == {}


async def test_a_broker_that_keeps_little_for_who_is_slow_is_told_to_keep_more(start_broker):
    sick = await start_broker(extra_config=("sys_interval 1",))

    found = await report(settings_for(sick))

    [queue] = [each for each in found.findings if each.name == "queue"]
    assert queue.outcome == "warn"
    # A thousand wait beside the 20 in flight; Mosquitto counts those 20 twice since 2.0.13.
    assert queue.found.startswith(tuple(f"of 2000 publications {n} were" for n in (1020, 1040)))
    assert (found.exit_code, found.config_lines) == (0, (DEEP_QUEUE,))


@pytest.mark.parametrize("missing", ["subscribe", "unsubscribe", "notice"])
async def test_only_the_missing_log_type_is_asked_for(missing, start_broker):
    kinds = [k for k in ("subscribe", "unsubscribe", "notice") if k != missing]
    lines = ("log_dest topic", *(f"log_type {kind}" for kind in kinds))
    broker = await start_broker(log_topics=False, extra_config=(FAST_SYSTEM, *lines))

    found = await report(settings_for(broker))

    assert outcomes(found) == {"log topics": "fail"}
    assert found.config_lines == (f"log_type {missing}",)


async def test_log_topics_that_are_not_wanted_are_not_missed(start_broker):
    broker = await start_broker(log_topics=False, extra_config=(FAST_SYSTEM,))

    found = await report(settings_for(broker, "[discovery]", "log_topics = false"))

    assert outcomes(found) == {}
    assert found.exit_code == 0


async def test_an_acl_that_hides_our_topics_is_found_and_the_lines_cure_it(start_broker, tmp_path):
    acl = tmp_path / "acl"
    acl.write_text("topic read $SYS/broker/version\n")
    acl.chmod(0o644)
    broker = await start_broker(extra_config=(FAST_SYSTEM, f"acl_file {acl}"))
    settings = settings_for(broker)

    facts = await examine(settings, line_seconds_max=0.5, system_seconds_max=0)
    found = judge(facts, settings)

    assert outcomes(found) == {
        "control topics": "fail",
        "clients' topics": "fail",
        "data connection": "fail",
        "log topics": "fail",
        "$SYS": "warn",
    }
    assert "not authorized" in next(f.found for f in found.findings if f.name == "control topics")
    assert found.acl_lines[:2] == ("topic readwrite $fed/fed/#", "topic readwrite #")
    acl.write_text("\n".join((*found.acl_lines, "topic read $SYS/broker/#")) + "\n")
    await broker.restart()
    assert outcomes(await report(settings)) == {}


async def test_topics_that_may_be_written_but_not_read_are_found(start_broker, tmp_path):
    acl = tmp_path / "acl"
    acl.write_text("topic write $fed/#\ntopic readwrite #\ntopic read $SYS/#\n")
    acl.chmod(0o644)
    broker = await start_broker(extra_config=(FAST_SYSTEM, f"acl_file {acl}"))

    found = await report(settings_for(broker))

    assert outcomes(found) == {"control topics": "fail", "data connection": "fail"}
    assert found.acl_lines == ("topic readwrite $fed/fed/#",)


@pytest.mark.parametrize("hidden", ["data", "cover", "retained_mark", "delivered/7"])
@pytest.mark.parametrize("right", ["no right", "write"])
async def test_each_topic_of_the_data_connection_must_be_allowed(
    hidden, right, start_broker, tmp_path
):
    acl = tmp_path / "acl"
    topics = {"doctor/+", "data", "cover", "retained_mark", "delivered/7"} - {hidden}
    lines = [f"topic readwrite $fed/fed/{topic}" for topic in sorted(topics)]
    lines += [f"topic write $fed/fed/{hidden}"] if right == "write" else []
    acl.write_text("\n".join((*lines, "topic readwrite #", "topic read $SYS/#", "")))
    acl.chmod(0o644)
    broker = await start_broker(extra_config=(FAST_SYSTEM, f"acl_file {acl}"))

    found = await report(settings_for(broker))

    assert outcomes(found) == {"data connection": "fail"}
    what = next(f.found for f in found.findings if f.name == "data connection")
    assert what.startswith(f"$fed/fed/{hidden}: ")
    assert found.acl_lines == ("topic readwrite $fed/fed/#",)


async def test_the_doctor_does_not_disturb_an_agent_at_work(tmp_path):
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        agent = await plain.agent(7, broker)
        before = (await agent.status())["counters"]["data"]

        found = await report(settings_for(broker))

        counters = (await agent.status())["counters"]
        assert outcomes(found) == {}
        data = counters["data"]
        assert data["frames_of_strangers"] == before["frames_of_strangers"] + 2
        assert (data["malformed_frames"], data["publications_in"]) == (0, 0)
        assert not any(counters["control_malformed"].values())
        plain.assert_calm()


async def test_a_signed_agent_does_not_take_the_doctor_for_an_intruder(tmp_path):
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        keys = Office(tmp_path / "office").section(7)
        agent = await plain.agent(7, broker, security="signed", more=keys)

        found = await report(settings_for(broker))

        await eventually(agent, doctor_was_heard, "the doctor's word came")
        assert outcomes(found) == {}
        assert (await agent.status())["security"]["refused"] == 0


def doctor_was_heard(status):
    return status["counters"]["data"]["frames_of_strangers"] > 0


@pytest.mark.parametrize(
    ("limit", "outcome", "takes"), [(1_000, "fail", 1_000), (100_000, "warn", 98_304)]
)
async def test_a_payload_limit_that_the_broker_tells_nobody_is_found(
    start_broker, limit, outcome, takes
):
    lines = (FAST_SYSTEM, DEEP_QUEUE, f"message_size_limit {limit}")
    broker = await start_broker(extra_config=lines)

    found = await report(settings_for(broker))

    assert outcomes(found) == {"packet size": outcome}
    [finding] = [each for each in found.findings if each.name == "packet size"]
    assert f"payloads of {takes} bytes come back" in finding.found
    assert found.config_lines == ("message_size_limit 327680",)


@pytest.mark.parametrize(("limit", "outcome"), [(20_000, "fail"), (100_000, "warn")])
async def test_a_small_packet_limit_is_found(start_broker, limit, outcome):
    broker = await start_broker(extra_config=(FAST_SYSTEM, f"max_packet_size {limit}"))

    found = await report(settings_for(broker))

    assert outcomes(found) == {"packet size": outcome}
    assert found.config_lines == ("max_packet_size 327680",)


async def test_a_broker_that_retains_nothing_is_found_for_it_refuses_an_agents_will(start_broker):
    broker = await start_broker(extra_config=(FAST_SYSTEM, "retain_available false"))

    found = await report(settings_for(broker))

    assert outcomes(found)["retained"] == "fail"
    assert found.exit_code == 78


async def test_no_system_topics_is_a_warning(start_broker):
    broker = await start_broker(extra_config=("sys_interval 0", DEEP_QUEUE))
    settings = settings_for(broker)

    found = judge(await examine(settings, system_seconds_max=2.0), settings)

    assert outcomes(found) == {"version": "warn", "$SYS": "warn"}
    assert (found.exit_code, found.config_lines, found.acl_lines) == (0, ("sys_interval 10",), ())


async def test_a_password_is_used_and_a_wrong_one_is_77(start_broker, tmp_path):
    await make_password(tmp_path, "agent", "right")
    lines = (FAST_SYSTEM, f"password_file {tmp_path}/passwords")
    broker = await start_broker(allow_anonymous=False, extra_config=lines)
    name = 'username = "agent"'

    found = await report(settings_for(broker, name, 'password = "right"'))
    with pytest.raises(RefusedError, match="not authorized") as raised:
        await examine(settings_for(broker, name, 'password = "wrong"'))

    assert outcomes(found) == {}
    assert raised.value.config_exit_code == 77
    assert 'wrong"' not in str(raised.value)


async def test_one_id_for_all_connections_of_a_user_is_78(start_broker, tmp_path):
    await make_password(tmp_path, "agent", "right")
    lines = (FAST_SYSTEM, f"password_file {tmp_path}/passwords", "use_username_as_clientid true")
    broker = await start_broker(allow_anonymous=False, extra_config=lines)

    with pytest.raises(ConfigError, match="takes all connections of user 'agent' for") as raised:
        await examine(settings_for(broker, 'username = "agent"', 'password = "right"'))

    assert raised.value.exit_code == 78


async def test_a_neighbour_that_is_our_own_broker_is_named(start_broker):
    broker = await start_broker(extra_config=(FAST_SYSTEM,))
    other = broker.url.replace("127.0.0.1", "localhost")

    found = await report(settings_for(broker, "[[neighbours]]", f'url = "{other}"'))

    (told,) = [(f.outcome, f.found) for f in found.findings if f.name == "neighbour"]
    assert told == ("fail", f"{other}: leads to our own broker")


async def run_doctor(config: Path, *options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "federator", "doctor", "-c", str(config), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_verb_prints_the_missing_lines_and_exits_78(start_broker):
    broker = await start_broker(log_topics=False)
    settings_for(broker)
    config = broker.folder.parent / "federator.toml"

    code, out, err = await run_doctor(config, "--wait", "0")
    json_code, json_out, _ = await run_doctor(config, "--wait", "0", "--json")

    assert (code, json_code, err) == (78, 78, "")
    assert "    log_dest topic\n" in out
    assert out.endswith("cannot take part yet\n")
    assert "log_type subscribe" in json.loads(json_out)["config_lines"]


async def test_a_broker_that_is_not_there_is_69_in_one_line(tmp_path):
    (port,) = free_ports(1)
    config = tmp_path / "federator.toml"
    config.write_text(f'[broker]\nid = 1\nurl = "mqtt://127.0.0.1:{port}"\n')

    code, out, err = await run_doctor(config)

    assert (code, out) == (69, "")
    assert err == (
        f"federator: mqtt://127.0.0.1:{port}: connection refused: is the broker running?\n"
    )


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no MQTT broker, but HTTP"),
        (b"\xff" * 64, "no MQTT broker"),
        (b"\x20", "is it an MQTT 5 broker, or does port "),
        (b"", "is it an MQTT 5 broker, or does port "),
        (b"\x20\x02\x00\x01", "the broker does not speak MQTT 5"),
    ],
)
async def test_a_server_that_is_no_broker_is_69_in_one_line(answer, wanted, tmp_path):
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)

    async with serving(reply) as port:
        config = tmp_path / "federator.toml"
        config.write_text(f'[broker]\nid = 1\nurl = "mqtt://127.0.0.1:{port}"\n')

        code, out, err = await run_doctor(config)

    assert (code, out) == (69, "")
    assert err.startswith(f"federator: mqtt://127.0.0.1:{port}: ")
    assert wanted in err
    assert err.count("\n") == 1


async def test_tls_where_there_is_none_is_told(start_broker):
    broker = await start_broker()
    config = broker.folder.parent / "federator.toml"
    config.write_text(f'[broker]\nid = 1\nurl = "mqtts://127.0.0.1:{broker.port}"\n')

    code, out, err = await run_doctor(config)

    assert (code, out) == (69, "")
    assert f"does port {broker.port} speak TLS? without it the URL begins with mqtt://" in err


async def test_neighbours_are_tried_there_and_back(plain: Plain) -> None:
    """One lets us in and its agent speaks here, one does not, one is away; we lead elsewhere."""
    here, there = await plain.broker(), await plain.broker()
    closed = await plain.broker(allow_anonymous=False)
    (nowhere,) = free_ports(1)
    await plain.agent(1, there, here.url)
    urls = (there.url, closed.url, f"mqtt://127.0.0.1:{nowhere}")
    lines = [line for url in urls for line in ("[[neighbours]]", f'url = "{url}"')]

    told = (await report(settings_for(here, f'advertise = "{there.url}"', *lines))).findings
    ways = [(f.outcome, f.found) for f in told if f.name == "neighbour"]

    assert ways == [
        ("ok", f"{urls[0]}: we may speak there, its agent speaks here"),
        ("fail", f"{urls[1]}: refused: not authorized: wrong user name or password, or no right"),
        ("warn", f"{urls[2]}: connection refused: is the broker running?"),
    ]
    (back,) = [(f.outcome, f.found) for f in told if f.name == "way to us"]
    assert back == ("warn", f"{there.url}: it leads to another broker than ours")


async def test_the_doctor_at_a_neighbour_disturbs_no_agent(plain: Plain) -> None:
    here, there = await plain.broker(), await plain.broker()
    two = await plain.agent(2, there, here.url)

    found = await report(settings_for(here, "[[neighbours]]", f'url = "{there.url}"'))

    (back,) = [f.found for f in found.findings if f.name == "way to us"]
    assert back == f"{here.url}: leads here; agents heard here: 2"
    assert (await two.status())["counters"]["control_malformed"] == {}
