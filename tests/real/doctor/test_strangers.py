"""A signed agent whose broker lets strangers speak below $fed/ says so, and is quiet otherwise."""

import pytest

from federator.cli.observe.status import as_text
from federator.config.reading import load
from federator.runtime.doctor.strangers import Speakers, who_may_speak
from tests.real.agent_log import named
from tests.real.logins import write_acl, write_passwords, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually
from tests.real.trust.test_signed import Office


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


@pytest.fixture
def secret_file(tmp_path):
    return write_secret(tmp_path / "secret")


@pytest.fixture
def logins(tmp_path):
    """Lines of mosquitto.conf by which one needs a login; and an ACL as the doctor prints it."""
    passwords = write_passwords(tmp_path / "passwords", "federator")
    return f"password_file {passwords}", f"acl_file {write_acl(tmp_path / 'acl')}"


@pytest.mark.parametrize(
    ("lines_used", "anonymous", "who"),
    [(0, True, Speakers.ANYBODY), (1, False, Speakers.LOGINS), (2, False, Speakers.NOBODY)],
)
async def test_who_may_speak_is_said_at_the_start_in_the_status_and_by_the_doctor(
    plain, office, secret_file, logins, lines_used, anonymous, who
):
    broker = await plain.broker(
        allow_anonymous=anonymous, extra_config=("sys_interval 1", *logins[:lines_used])
    )
    us = {"username": "federator", "password_file": str(secret_file)}
    agent = await plain.agent(
        1, broker, broker=us if lines_used else {}, security="signed", more=office.section(1)
    )
    status = await eventually(
        agent, lambda s: s["security"]["strangers_may_speak"] is not None, "it was tried"
    )
    _, printed, _ = await ran("doctor", "-c", str(agent.config_path))

    broker_settings = load(agent.config_path, {}).broker
    assert await who_may_speak(broker_settings, federation="fed", name="test") is who
    assert status["security"]["strangers_may_speak"] == who
    bad = who is not Speakers.NOBODY
    assert [line["who"] for line in named(agent, "acl.missing")] == ([who] if bad else [])
    assert any("NO ACL" in line for line in as_text(status)) == bad
    assert (f"may be written by {who}" in printed) == bad
