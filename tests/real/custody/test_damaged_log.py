"""A disk that gives back another bit than it took, in the log of what nobody has got yet."""

from federator.runtime.custody.segment import HEADER_BYTES, LABEL_BYTES
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until


async def test_one_flipped_bit_in_the_log_costs_one_frame_and_is_told(plain):
    one, two = [await plain.broker() for _ in range(2)]
    agent = await plain.agent(1, one)
    other = await plain.agent(2, two, one.url)
    await eventually(agent, linked(2), "linked")
    subscriber = Subscriber(two.port, "plant/#", client_id="sub", qos=1)
    publisher = Publisher(one.port, "plant/1", client_id="pub", qos=1)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        await publisher.rest()
        last = publisher.sent - 1
        await until(lambda: subscriber.came[last], "all that is under way came")
        await other.stop()
        (log,) = (agent.state_dir / "custody" / "log").glob("*.log")
        before = log.stat().st_size
        publisher.resume()
        await until(lambda: publisher.sent >= last + 200, "200 wait in the log")
        await publisher.rest()
        await until(lambda: log.stat().st_size > before, "the log has them")
        await agent.stop()
        content = bytearray(log.read_bytes())
        at = max(before, HEADER_BYTES) + LABEL_BYTES // 2
        content[at] ^= 1
        log.write_bytes(content)

        await agent.start()
        await other.start()
        end = publisher.sent
        await until(lambda: subscriber.came[end - 1], "the newest came")
        publisher.resume()
        await gets_through(publisher, subscriber)

    missing = [number for number in range(last + 1, end) if not subscriber.came[number]]
    (told,) = named(agent, "storage.damaged")
    assert told["path"] == str(log)
    assert 1 <= len(missing) < 100
    assert missing == list(range(missing[0], missing[0] + len(missing)))
    assert subscriber.duplicates == 0
