"""Several gateways, which share nothing but the federation."""

import asyncio

from tests.real.gateway.clients import V5, GatewayClient
from tests.real.polling import until


async def test_what_clients_of_one_gateway_publish_those_of_another_do_not_miss(stage):
    """Between the death of a broker and the moment when all know where its clients are now."""
    reads = await stage.gateway("reads", home=1, brokers=(1, 3))
    writes = await stage.gateway("writes", home=2)
    readers = [
        GatewayClient(reads.port, f"r{n}", subscribes=("a/#",), **({"version": V5} if n else {}))
        for n in range(2)
    ]
    writer = GatewayClient(writes.port, "w", version=V5)
    stop = asyncio.Event()
    async with readers[0], readers[1], writer:
        flow = asyncio.create_task(writer.publish("a/b", rate_hz=300, stop=stop))
        await until(lambda: all(len(r.came) > 200 for r in readers), "publications flow")

        stage.brokers[1].kill9()
        before = len(writer.acknowledged)
        await until(lambda: len(writer.acknowledged) > before + 500, "it goes on")

        stop.set()
        await flow
        for reader in readers:
            await until(lambda r=reader: set(writer.acknowledged) <= set(r.came), "all of it came")
            assert reader.error is None
