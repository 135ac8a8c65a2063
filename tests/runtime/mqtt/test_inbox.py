"""Control messages wait their turn: senders take turns, each in order and with room of its own."""

import asyncio
import struct
import time

from mqtt5 import PublishPacket

from federator.runtime.mqtt import inbox as inboxes
from federator.runtime.mqtt.inbox import SENDER_BYTES_MAX, TURN_S, Inbox
from tests.real.polling import until

LARGE = b"x" * (SENDER_BYTES_MAX // 2)


def message(sender, number, body=b""):
    """Sealed as by ``sender``, as far as one can tell without its key."""
    return PublishPacket("$fed/fed/ctl", b"M" + struct.pack("!IIQ", 7, sender, number) + body)


def told(packet):
    _, sender, number = struct.unpack("!IIQ", packet.payload[1:17])
    return sender, number


async def test_what_there_is_time_for_is_looked_at_at_once(monkeypatch):
    monkeypatch.setattr(inboxes, "TURN_S", 60.0)
    taken = []
    inbox = Inbox(lambda packet: taken.append(told(packet)))

    for number in range(3):
        inbox.put(message(1, number))
    inbox.work()

    assert taken == [(1, 0), (1, 1), (1, 2)]


async def test_senders_take_turns_and_the_loop_gets_its_own():
    taken, turns = [], 0

    def take(packet):
        taken.append(told(packet))
        time.sleep(TURN_S)  # as an expensive one would take

    inbox = Inbox(take)
    for number in range(3):
        inbox.put(message(1, number))
    inbox.put(message(2, 0))
    inbox.work()
    assert taken == [(1, 0)]
    inbox.work()  # a read that comes in between takes no time of its own
    assert taken == [(1, 0)]

    while len(taken) < 4:
        turns += 1
        await asyncio.sleep(0)

    assert taken == [(1, 0), (2, 0), (1, 1), (1, 2)]
    assert turns >= 3


async def test_a_flood_of_one_takes_no_room_of_another():
    taken = []
    inbox = Inbox(lambda packet: taken.append(told(packet)))

    room = [inbox.put(message(1, number, LARGE)) for number in range(3)]
    room.append(inbox.put(message(2, 0)))
    inbox.work()
    await until(lambda: len(taken) == 2, "what had room is taken")

    assert room == [True, False, False, True]
    assert taken == [(1, 0), (2, 0)]
