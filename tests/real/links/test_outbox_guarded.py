"""What keeps an outbox: the broker's ACL, and a bound on what waits in it. What the doctor sees."""

import asyncio
import time

import pytest

from lab.bench.processor import resident_bytes
from lab.grid.processes.relay import Relay
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.links.test_outbox import NOWHERE, Pair
from tests.real.logins import guarded, login, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through
from tests.real.polling import until
from tests.real.refusing import refuse

USERS = ("federator", "federator-1", "federator-7", "federator-peer", "alice")
PAYLOAD_BYTES = 50_000
FLOOD = 1_200
"""Publications: 60 MB, more than all that may wait together."""
QUEUE_BYTES = 1_048_576
NARROW_BYTES_PER_S = 500_000
"""A tenth of what is published."""
NARROW_S = 12.0
"""Several hello time-outs."""
GROWTH_BYTES_MAX = 24_000_000
"""Of the broker's memory: the window, what sockets hold, and room for noise."""


@pytest.fixture
def secret_file(tmp_path):
    return write_secret(tmp_path / "secret")


async def guarded_hub(plain, tmp_path, secret_file, *outbound):
    """A hub with passwords and the ACL that the doctor prints, its agent, and a site's broker."""
    lines = (*guarded(tmp_path, USERS, 2, *outbound), *QUICK, *DEEP)
    outside = await plain.broker(allow_anonymous=False, extra_config=lines)
    us = {"username": "federator", "password_file": str(secret_file)}
    hub = await plain.agent(2, outside, broker=us)
    return await plain.broker(), outside, hub


def as_site(secret_file, user="federator-1"):
    them = {"username": user, "password_file": str(secret_file)}
    return {"broker": {"advertise": NOWHERE}, "links": {"dial": "out", **them}}


async def test_nobody_else_hears_what_is_said_in_an_outbox(plain, tmp_path, secret_file):
    """Nor a client, nor a neighbour, nor another one that only dials; its reader hears all."""
    both = ("--outbound", "1", "--outbound", "7")
    inside, outside, hub = await guarded_hub(plain, tmp_path, secret_file, *both)
    site = await plain.agent(1, inside, outside.url, **as_site(secret_file))
    await Pair(inside, outside, site, hub).linked()
    filters = ("$fed/fed/outbox/#", "$fed/fed/outbox/1/data", "$fed/fed/outbox/+/hello")
    ears = {
        user: Client(outside.port, f"ear-{user}", *filters, qos=0, login=login(user))
        for user in ("federator-1", "federator-7", "federator-peer", "alice")
    }
    sender = Publisher(outside.port, "t", client_id="sender", login=login("alice"))
    taker = Subscriber(inside.port, "t", client_id="taker")

    async with running(*ears.values(), sender, taker):
        await gets_through(sender, taker)
        reader = ears.pop("federator-1")
        wanted = {"$fed/fed/outbox/1/data", "$fed/fed/outbox/1/hello"}
        await until(lambda: wanted <= reader.last.keys(), "its reader hears")

    assert {user: ear.came for user, ear in ears.items()} == {user: [] for user in ears}


async def test_the_doctor_of_a_site_tells_who_may_hear_from_who_may_not(
    plain, tmp_path, secret_file
):
    inside, outside, _ = await guarded_hub(plain, tmp_path, secret_file, "--outbound", "1")
    told = {}
    for user in ("federator-1", "federator-peer"):
        path = tmp_path / f"{user}.toml"
        lines = [f'[broker]\nid = 1\nurl = "{inside.url}"', '[links]\ndial = "out"']
        lines += [f'username = "{user}"', f'password_file = "{secret_file}"']
        lines += [f'[[neighbours]]\nurl = "{outside.url}"', "[http]\nport = 0"]
        path.write_text('security = "open"\n' + "\n".join([*lines, ""]))
        told[user] = await ran("doctor", "-c", str(path))

    code, text, _ = told["federator-1"]
    assert "we may speak there, and hear what is said to us there" in text, text
    assert "way to us" not in text
    assert code == 0
    code, text, _ = told["federator-peer"]
    assert "we may speak there, and not hear what is said to us there" in text, text
    assert "federator doctor --acl --outbound 1=OUR-USER" in text
    assert code == 78


class Padded(Publisher):
    def payload(self, number):
        return super().payload(number).ljust(PAYLOAD_BYTES)


async def test_what_nobody_takes_out_of_an_outbox_does_not_pile_up_at_the_broker(plain):
    """The site's agent hangs; what is said to it waits at the hub's agent, within its bound."""
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    links = {"send_queue_bytes_max": QUEUE_BYTES, "hello_timeout_ms": 60_000}
    hub = await plain.agent(2, outside, links=links)
    site = await plain.agent(
        1, inside, outside.url, broker={"advertise": NOWHERE}, links={**links, "dial": "out"}
    )
    await Pair(inside, outside, site, hub).linked()
    sender = Padded(outside.port, "t", client_id="sender", rate_hz=300)
    taker = Subscriber(inside.port, "t", client_id="taker")

    async with running(sender, taker):
        await gets_through(sender, taker)
        before, sent = resident_bytes(outside.pid), sender.sent
        site.pause()
        await until(lambda: sender.sent > sent + FLOOD, "the flood is published")
        grown = resident_bytes(outside.pid) - before
        waits = (await hub.status())["counters"]["data"]["dropped"]
        site.resume()

        await gets_through(sender, taker)

    assert grown < GROWTH_BYTES_MAX
    assert waits > FLOOD / 2  # what the window and the queue do not hold


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.few(1)
async def test_a_narrow_way_out_is_filled_and_hellos_pass_beside(plain, qos):
    """Nothing of the link goes down, order holds, and what the way carries is publications."""
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    relay = Relay(outside.place, delay_s=0.001)
    port = relay.listen()
    links = {"send_queue_bytes_max": QUEUE_BYTES}
    hub = await plain.agent(2, outside, links=links)
    told = {"broker": {"advertise": NOWHERE}, "links": {**links, "dial": "out"}}
    site = await plain.agent(1, inside, f"mqtt://127.0.0.1:{port}", **told)
    await Pair(inside, outside, site, hub).linked()
    sender = Padded(outside.port, "t", client_id="sender", rate_hz=100, qos=qos)
    taker = Subscriber(inside.port, "t", client_id="taker", qos=qos)

    async with running(sender, taker):
        await gets_through(sender, taker)
        relay.bytes_per_s = NARROW_BYTES_PER_S
        await asyncio.sleep(NARROW_S)
        late_s = time.monotonic() - NARROW_S / 2
        carried = PAYLOAD_BYTES * sum(at_s > late_s for at_s in taker.at_s) / (NARROW_S / 2)
        downs = [named(agent, "link.down") for agent in (hub, site)]
        relay.bytes_per_s = None
        await gets_through(sender, taker)
    await site.stop()
    relay.close()

    assert downs == [[], []], "hellos waited behind data"
    assert carried > NARROW_BYTES_PER_S / 10
    assert taker.order == sorted(taker.order)
    assert taker.duplicates == 0


async def test_a_site_that_may_not_hear_what_is_said_to_it_is_not_ready_and_says_why(
    plain, tmp_path
):
    lines = (*refuse(tmp_path, "$fed/fed/outbox/#"), *QUICK)
    inside, outside = await plain.broker(), await plain.broker(extra_config=lines)
    await plain.agent(2, outside)

    site = await plain.agent(
        1, inside, outside.url, broker={"advertise": NOWHERE}, links={"dial": "out"}
    )

    told = await eventually(site, lambda told: "let us read" in told["ready_reason"], "not ready")
    assert not told["ready"]
    assert told["links"][0]["refuses"]
    code, text, _ = await ran("status", "-c", str(site.config_path))
    assert code == 1
    assert "NOT READY" in text.splitlines()[0]
    assert "federator doctor --acl --outbound" in text
