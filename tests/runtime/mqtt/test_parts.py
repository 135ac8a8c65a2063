"""The table that says which part of an agent takes a topic or a message."""

from mqtt5 import PublishPacket

from federator.protocol.messages.control import Bye, Revoked
from federator.runtime.mqtt.parts import Dispatch, Part


def test_all_who_take_a_topic_are_told_in_the_order_of_the_parts():
    told = []
    parts = [
        Part(topics={"$SYS/broker/log/N": lambda packet, name=name: told.append(name)})
        for name in ("first", "second", "third")
    ]

    Dispatch(parts).on_publish(PublishPacket("$SYS/broker/log/N", b"a line"))

    assert told == ["first", "second", "third"]


def test_a_filter_brings_the_topics_that_it_matches():
    told = []
    dispatch = Dispatch([Part(topics={"$SYS/broker/connection/+/state": told.append})])
    state = PublishPacket("$SYS/broker/connection/b/state", b"1")

    dispatch.on_publish(state)
    dispatch.on_publish(PublishPacket("$SYS/broker/uptime", b"1"))

    assert told == [state]


def test_a_message_that_no_part_takes_is_dropped():
    told = []
    dispatch = Dispatch([Part(messages={Bye: told.append})])
    bye = Bye(1, 1, 1)

    dispatch.on_message(Revoked(1, ()))
    dispatch.on_message(bye)

    assert told == [bye]
