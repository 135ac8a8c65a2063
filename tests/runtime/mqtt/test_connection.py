"""One connection: what is said at its start and its end, and how long a silent broker may be."""

import asyncio
import contextlib
import math

import mqtt5
import pytest

from federator.errors import LinkError
from federator.runtime.mqtt.connection import Introduction, MqttConnection
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.transport import PacketTransport
from federator.runtime.mqtt.wire import PINGREQ, read_packets
from tests.real.polling import until
from tests.tcp_server import serving

ACCEPTED = mqtt5.ConnAckPacket()
REFUSED = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED)


class Kernel:
    """Stands for the operating system: notes what is written, and is as slow as it is told.

    Args:
        pings_max: It loses the connection when it has as many pings.
        unsent_bytes: What of everything written it did not send yet: before the first ping, and
            after each.
    """

    def __init__(self, pings_max=100, unsent_bytes=(0,)):
        self.written = []
        self.pipe = None
        self._pings_max = pings_max
        self._unsent_bytes = unsent_bytes

    def write(self, data):
        self.written.append(bytes(data))
        if data == PINGREQ and self.written.count(PINGREQ) == self._pings_max:
            self.pipe.connection_lost(None)

    def get_write_buffer_size(self):
        pings = self.written.count(PINGREQ)
        return self._unsent_bytes[min(pings, len(self._unsent_bytes) - 1)]

    def set_write_buffer_limits(self, **limits): ...

    def get_extra_info(self, name):
        return None

    def close(self):
        self.pipe.connection_lost(None)

    def abort(self):
        self.pipe.connection_lost(None)


def introduction(**changed):
    usual = {"client_id": "me", "clean_start": True, "session_expiry_s": 0, "keep_alive_s": 1}
    return Introduction(**{**usual, "will": None, "packet_bytes_max": 1_000, **changed})


def connection(*, kernel=None, promises=None, us=None, open_timeout_s=60.0):
    """One whose bytes ``kernel`` takes at once, or that is still to be opened."""
    pipe = PacketTransport(len, packet_bytes_max=1_000, queue_bytes_max=1_000)
    if kernel is not None:
        kernel.pipe = pipe
        pipe.connection_made(kernel)
    promise = (promises if promises is not None else []).append
    return MqttConnection(
        pipe, us or introduction(), open_timeout_s=open_timeout_s, promise=promise
    )


@contextlib.asynccontextmanager
async def broker_that_answers(answers, heard):
    """A TCP peer that answers its n-th connection with ``answers[n]``; yields its port."""

    async def serve(reader, writer):
        read_packets(memoryview(await reader.read(1_000)), [], heard)
        writer.write(answers[len(heard) - 1])
        await reader.read()

    async with serving(serve) as port:
        yield port


async def test_a_broker_without_a_sign_of_life_is_given_up():
    silent = connection(kernel=Kernel())

    with pytest.raises(LinkError, match=r"no sign of life for 0\.5 s"):
        await silent.keep_alive()


async def test_a_silent_broker_that_takes_what_waits_for_it_is_not_given_up():
    slow = Kernel(unsent_bytes=[900, 600, 300, 300 + len(PINGREQ)])

    with pytest.raises(LinkError, match="no sign of life"):
        await connection(kernel=slow).keep_alive()

    assert slow.written.count(PINGREQ) == 3


async def test_the_keep_alive_that_the_broker_names_holds():
    promises = []
    named = connection(
        kernel=Kernel(pings_max=1), promises=promises, us=introduction(keep_alive_s=3_600)
    )

    named.on_accepted(mqtt5.ConnAckPacket(server_keep_alive=4))
    await named.keep_alive()

    assert promises == [2.0]


async def test_without_a_keep_alive_nobody_is_given_up():
    promises = []
    patient = connection(
        kernel=Kernel(pings_max=1), promises=promises, us=introduction(keep_alive_s=0)
    )

    await patient.keep_alive()

    assert promises == [math.inf]


async def test_who_was_let_in_says_good_bye():
    kernel = Kernel()
    welcome = connection(kernel=kernel)
    welcome.on_accepted(ACCEPTED)

    await welcome.leave()

    read_packets(memoryview(b"".join(kernel.written)), [], packets := [])
    assert [int(packet.reason_code) for packet in packets] == [0x00]


async def test_who_was_not_let_in_leaves_without_a_word():
    kernel = Kernel()

    await connection(kernel=kernel).leave()

    assert kernel.written == []
    assert kernel.pipe.lost.done()


async def test_a_broker_that_accepts_and_says_nothing_is_left_in_time():
    promises, heard = [], []
    slow = connection(promises=promises, open_timeout_s=0.2)

    async with broker_that_answers([b""], heard) as port:
        with pytest.raises(LinkError, match=r"no answer within 0\.2 s"):
            await slow.open(Endpoint("127.0.0.1", port))
        await slow.leave()

    assert promises == [0.2]


async def test_a_session_is_wiped_until_the_broker_lets_us_in_and_then_no_more():
    us = introduction(session_expiry_s=60)
    heard = []
    answers = [REFUSED.write(), b"", ACCEPTED.write(), b"", b""]

    async with broker_that_answers(answers, heard) as port:
        for said in (2, 4, 5):
            attempt = connection(us=us)
            opening = asyncio.create_task(attempt.open(Endpoint("127.0.0.1", port)))
            await until(lambda said=said: len(heard) == said, "the last CONNECT of this attempt")
            attempt.on_accepted(ACCEPTED)
            await opening
            await attempt.leave()

    assert [connect.clean_start for connect in heard] == [True, False, True, False, False]


def read(packet):
    read_packets(memoryview(packet), [], packets := [])
    (connect,) = packets
    return connect


@pytest.mark.parametrize(
    ("clean_start", "session_expiry_s", "starts_clean", "wipes"),
    [(True, 0, True, False), (True, 60, False, True), (False, 60, False, False)],
)
def test_a_session_that_is_new_and_stays_is_wiped_and_not_begun_with_a_clean_start(
    clean_start, session_expiry_s, starts_clean, wipes
):
    us = introduction(clean_start=clean_start, session_expiry_s=session_expiry_s)

    connect = read(us.connect())

    assert (connect.clean_start, us.must_wipe) == (starts_clean, wipes)
    assert connect.session_expiry_interval == session_expiry_s


def test_who_comes_to_wipe_leaves_no_session_and_no_will():
    will = mqtt5.Will(topic="gone", payload=b"")
    us = introduction(session_expiry_s=60, will=will, username="u", password=b"p")

    connect = read(us.connect(to_wipe=True))

    assert connect.clean_start
    assert (connect.session_expiry_interval, connect.will) == (0, None)
    assert (connect.client_id, connect.username, connect.password) == ("me", "u", b"p")


def test_a_will_that_changes_is_asked_for_at_each_connection():
    wills = iter(
        [mqtt5.Will(topic="gone", payload=b"1"), mqtt5.Will(topic="gone", payload=b"2"), None]
    )
    us = introduction(will=lambda: next(wills))

    said = [read(us.connect()).will for _ in range(3)]

    assert [will and will.payload for will in said] == [b"1", b"2", None]


def test_a_password_is_not_shown():
    assert "secret" not in repr(introduction(username="u", password=b"secret"))
