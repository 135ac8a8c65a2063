"""Several gateways, which share nothing but the federation."""

from itertools import product

from tests.real.gateway.clients import V5, GatewayClient, flowing, grow


async def test_what_clients_of_one_gateway_publish_those_of_another_do_not_miss(stage):
    """Between the death of a broker and the moment when all know where its clients are now."""
    reads = await stage.gateway("reads", home=1, brokers=(1, 3))
    writes = await stage.gateway("writes", home=2)
    readers = [
        GatewayClient(reads.port, f"r{n}", subscribes=("a/#",), **({"version": V5} if n else {}))
        for n in range(2)
    ]
    writer = GatewayClient(writes.port, "w", version=V5)
    pairs, topics = product(readers, [writer]), {writer: "a/b"}
    async with flowing(pairs, topics, rate_hz=300, first=200, from_first=True) as settled:
        stage.brokers[1].kill9()
        await grow(writer.acknowledged, by=500)

        await settled()
