"""A disk that gives back another bit than it took, in the log of what nobody has got yet."""

from federator.runtime.custody.segment import HEADER_BYTES, LABEL_BYTES
from tests.real.agent_log import named
from tests.real.custody.resting import resting_stream
from tests.real.plain_agents import gets_through
from tests.real.polling import until


async def test_one_flipped_bit_in_the_log_costs_one_frame_and_is_told(plain):
    async with resting_stream(plain) as (_, (agent, other), publisher, subscriber):
        last = publisher.sent - 1
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
