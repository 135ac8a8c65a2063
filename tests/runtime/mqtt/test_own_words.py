"""What an agent says to itself by way of its broker, and what others say in its name."""

from mqtt5 import PublishPacket, QoS

from federator.runtime.mqtt.own_words import OwnWords


def comes(payload, *, qos=1):
    packet_id = 7 if qos else None
    return PublishPacket("$fed/fed/cover", payload, qos=QoS(qos), packet_id=packet_id)


def test_we_hear_the_number_that_we_said():
    words = OwnWords()

    assert [words.hear(comes(words.say(n))) for n in (0, 1, 2**64 - 1)] == [0, 1, 2**64 - 1]
    assert words.refused == 0


def test_nobody_else_says_a_number_not_even_we_in_an_earlier_life():
    words = OwnWords()
    said = words.say(5)

    strange = [
        b"",
        said[:8],
        said[:-1],
        said + b"x",
        words.say(6)[:8] + said[8:],
        OwnWords().say(5),
    ]

    assert [words.hear(comes(payload)) for payload in strange] == [None] * 6
    assert words.refused == 6


def test_a_copy_that_overtakes_the_word_itself_is_not_heard():
    words = OwnWords()

    assert words.hear(comes(words.say(5), qos=0)) is None
