"""What holds a leaf to its own: the rules of its entry, and the ACL that the doctor prints."""

import asyncio

from tests.real.flow import Publisher, Subscriber, running
from tests.real.logins import login, write_passwords, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through, linked

USERS = ("federator", "federator-11", "federator-12", "alice")


async def test_rules_of_its_entry_hold_a_leaf_to_its_topics(plain):
    hub_broker, home = await plain.broker(), await plain.broker()
    rules = 'import = ["site/11/#"]\nexport = ["site/11/#", "all/#"]\n'
    await plain.agent(1, hub_broker, more=f"[[leaves]]\nid = 11\n{rules}")
    leaf = await plain.agent(11, home, (hub_broker.url, 1), role="leaf")
    await eventually(leaf, linked(1), "the leaf is linked")
    own = Publisher(home.port, "site/11/x", client_id="own", qos=1)
    foreign = Publisher(home.port, "site/12/x", client_id="foreign", qos=1)
    secret = Publisher(hub_broker.port, "site/12/y", client_id="secret", qos=1)
    common = Publisher(hub_broker.port, "all/y", client_id="common", qos=1)
    own_taker = Subscriber(hub_broker.port, "site/11/x", client_id="own-taker", qos=1)
    foreign_taker = Subscriber(hub_broker.port, "site/12/x", client_id="foreign-taker", qos=1)
    nosy = Subscriber(home.port, "site/12/y", client_id="nosy", qos=1)
    modest = Subscriber(home.port, "all/y", client_id="modest", qos=1)

    async with running(own, foreign, secret, common, own_taker, foreign_taker, nosy, modest):
        await gets_through(own, own_taker)
        await gets_through(common, modest)
        await asyncio.sleep(2)

    assert not foreign_taker.came
    assert not nosy.came


async def test_the_rights_that_the_doctor_prints_are_enough_for_leaves(plain, tmp_path):
    secret_file = write_secret(tmp_path / "secret")
    passwords = write_passwords(tmp_path / "passwords", *USERS)
    config, acl = tmp_path / "hub.toml", tmp_path / "acl"
    entries = "[[leaves]]\nid = 11\n[[leaves]]\nid = 12\n"
    config.write_text(f'[broker]\nid = 1\nurl = "mqtt://b"\nusername = "federator"\n{entries}')
    code, printed, err = await ran("doctor", "--acl", "-c", str(config))
    assert (code, err) == (0, "")
    acl.write_text(printed)
    lines = (f"password_file {passwords}", f"acl_file {acl}", *QUICK, *DEEP)
    hub_broker = await plain.broker(allow_anonymous=False, extra_config=lines)
    us = {"username": "federator", "password_file": str(secret_file)}
    await plain.agent(1, hub_broker, broker=us, more=entries)
    homes = {11: await plain.broker(), 12: await plain.broker()}
    for id_, home in homes.items():
        them = {"username": f"federator-{id_}", "password_file": str(secret_file)}
        leaf = await plain.agent(id_, home, (hub_broker.url, 1), role="leaf", links=them)
        await eventually(leaf, linked(1), f"leaf {id_} is linked")
    sender = Publisher(homes[11].port, "t", client_id="sender", qos=1)
    taker = Subscriber(homes[12].port, "t", client_id="taker", qos=1)
    beside = Subscriber(hub_broker.port, "t", client_id="beside", qos=1, login=login("alice"))

    async with running(sender, taker, beside):
        await gets_through(sender, taker, beside)
