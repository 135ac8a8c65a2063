"""Links in WebSockets: from behind NAT and a proxy, both ways, and to our own broker."""

import asyncio

import pytest

from lab.grid.processes.ports import free_ports
from tests.certificates import WEBSOCKETS, tls_listener, websocket_listener
from tests.real.links.test_outbox import NOWHERE, Pair
from tests.real.mqtt import http_proxy
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import DEEP, QUICK
from tests.real.streams import flowing


async def in_websockets(plain):
    """A broker, and the URL of its WebSockets."""
    (port,) = free_ports(1)
    lines = (*QUICK, *DEEP, *websocket_listener(port))
    return await plain.broker(extra_config=lines), f"ws://127.0.0.1:{port}"


@pytest.fixture
async def pair(plain, keys):
    """The site dials ``wss://`` by a proxy, and nobody dials it."""
    (port,) = free_ports(1)
    lines = (*QUICK, *DEEP, *tls_listener(keys, port), WEBSOCKETS)
    inside, outside = await plain.broker(), await plain.broker(extra_config=lines)
    url = f"wss://127.0.0.1:{port}/mqtt"
    # What it says of itself is where the site dials, or it could be dialled past the proxy.
    hub = await plain.agent(2, outside, broker={"advertise": url})
    async with http_proxy.HttpProxy() as proxy:
        tls = [f'ca_file = "{keys}/broker.pem"', f'cert_file = "{keys}/client.pem"']
        named = "\n".join([*tls, f'key_file = "{keys}/client.key"'])
        site = await plain.agent(
            1,
            inside,
            (url, 2, named),
            broker={"advertise": NOWHERE},
            links={"dial": "out", "proxy": proxy.url},
        )
        made = Pair(inside, outside, site, hub)
        made.proxy = proxy
        await made.linked()
        yield made
        await site.stop()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.few(1)
async def test_a_site_behind_nat_takes_part_by_websockets_and_a_proxy_alone(pair, qos):
    streams = pair.streams(qos=qos)

    async with flowing(streams):
        await asyncio.sleep(2)
    assert len(set(pair.proxy.asked)) == 1
    assert (await pair.hub.status())["links"][0]["dialled"] == "by it alone"


async def test_cut_links_cost_nothing(pair):
    streams = pair.streams()

    async with flowing(streams):
        for _ in range(4):
            await asyncio.sleep(0.7)
            pair.proxy.hang_up()
        await asyncio.sleep(1)
        await pair.up()


async def test_both_ends_dial_in_websockets_and_speak_so_with_their_own_brokers(plain):
    (one, at_one), (two, at_two) = await asyncio.gather(in_websockets(plain), in_websockets(plain))
    agents = await plain.agent(1, at_one), await plain.agent(2, at_two, at_one)
    pair = Pair(one, two, *agents)
    await pair.linked()
    streams = pair.streams(qos=1)

    async with flowing(streams):
        await asyncio.sleep(1)
    told = (await agents[0].status())["links"]
    assert [link["address"] for link in told] == [at_two]


async def test_the_doctor_speaks_in_websockets_and_tells_which_listener_does_not(plain, tmp_path):
    here, at_here = await in_websockets(plain)
    there, at_there = await in_websockets(plain)
    config = tmp_path / "federator.toml"
    no_websocket = there.url.replace("mqtt://", "ws://")
    named = [f'[[neighbours]]\nurl = "{url}"' for url in (at_there, no_websocket)]
    lines = [f'[broker]\nid = 1\nurl = "{at_here}"', *named, "[http]\nport = 0", ""]
    config.write_text('security = "open"\n' + "\n".join(lines))

    _, told, _ = await ran("doctor", "-c", str(config))

    assert here.running
    assert f"{at_here}: leads here" in told
    assert f"{at_there}: we may speak there" in told
    assert f"{no_websocket}: hung up when asked for a WebSocket: is this its listener?" in told


async def test_the_doctor_of_a_site_that_only_dials_measures_how_long_packets_come(plain, tmp_path):
    """Mosquitto 2.0 has 16 turns to write them, of up to 100 ms each; later ones have one."""
    here = await plain.broker()
    _, at_there = await in_websockets(plain)
    config = tmp_path / "federator.toml"
    lines = [f'[broker]\nid = 1\nurl = "{here.url}"', f'[[neighbours]]\nurl = "{at_there}"']
    config.write_text("\n".join(['security = "open"', *lines, '[links]\ndial = "out"', ""]))

    _, told, _ = await ran("doctor", "-c", str(config))

    slow = f"{at_there}: 65536 bytes that are said to us there took "
    assert (slow in told) == ("mosquitto version 2.0" in told), told
