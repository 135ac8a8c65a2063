"""Real agents and a real steerer: what fills one link goes round, and nothing is lost by it."""

import json

import pytest

from lab.grid.processes.daemons import SteererProcess
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

pytestmark = pytest.mark.slow

STRAIGHT = '[routing]\nstrategy = "shortest-path"\n'
NARROW = 'capacity = "200 kbit/s"'
RATES_HZ = {"flow/a": 20, "flow/b": 15, "flow/c": 15}


class Heavy(Publisher):
    """Publications of 500 bytes."""

    def payload(self, number):
        return b"%0500d" % number


async def square(plain):
    """1 - 2 - 4 and 1 - 3 - 4: of equal cost, so the ordinary way from 1 to 4 leads by 2."""
    brokers = {id_: await plain.broker() for id_ in (1, 2, 3, 4)}
    for id_, others in ((1, (2, 3)), (2, (1, 4)), (3, (1, 4)), (4, (2, 3))):
        neighbours = [(brokers[each].url, each, NARROW) for each in others]
        await plain.agent(id_, brokers[id_], *neighbours, more=STRAIGHT)
    for agent, others in zip(plain.agents, ((2, 3), (1, 4), (1, 4), (2, 3)), strict=True):
        await eventually(agent, linked(*others), "linked")
    return brokers


@pytest.mark.full
async def test_what_fills_one_link_goes_round_and_comes_once(plain, tmp_path):
    brokers = await square(plain)
    senders = [
        Heavy(brokers[1].port, topic, client_id=topic[-1], rate_hz=rate, qos=1)
        for topic, rate in RATES_HZ.items()
    ]
    readers = [
        Subscriber(brokers[4].port, topic, client_id=f"to-{topic[-1]}", qos=1) for topic in RATES_HZ
    ]
    steerer = SteererProcess(tmp_path / "s", brokers[1].url)
    async with running(*senders, *readers):
        for sender, reader in zip(senders, readers, strict=True):
            await gets_through(sender, reader)
        first = [max(reader.came) for reader in readers]
        await steerer.start()
        try:
            await until(lambda: '"steer.measured"' in steerer.log_path.read_text(), "it steers")
        finally:
            status = await steerer.status()
            await steerer.stop()
        for sender in senders:
            sender.pause()
        for sender, reader, since in zip(senders, readers, first, strict=True):
            await until(
                lambda s=sender, r=reader, n=since: all(r.came[k] for k in range(n, s.sent)),
                "all came",
            )
            assert reader.duplicates == 0
    (decision,) = status["decisions"]
    assert decision["fullest_before"] > 0.95, json.dumps(status)
    assert decision["fullest_promised"] <= 0.95
    assert decision["fullest_measured"] <= 0.95, json.dumps(status)
