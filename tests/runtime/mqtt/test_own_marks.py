"""Marks that an agent sends to itself through its broker, and those that others forge."""

from mqtt5 import PublishPacket, QoS

from federator.runtime.mqtt.own_marks import OwnMarks


def comes(payload, *, qos=1):
    packet_id = 7 if qos else None
    return PublishPacket("$fed/fed/cover", payload, qos=QoS(qos), packet_id=packet_id)


def test_we_read_the_number_that_we_wrote():
    marks = OwnMarks()

    assert [marks.read(comes(marks.write(n))) for n in (0, 1, 2**64 - 1)] == [0, 1, 2**64 - 1]
    assert marks.refused == 0


def test_no_other_client_writes_a_mark_of_ours_nor_do_we_in_an_earlier_life():
    marks = OwnMarks()
    said = marks.write(5)

    strange = [
        b"",
        said[:8],
        said[:-1],
        said + b"x",
        marks.write(6)[:8] + said[8:],
        OwnMarks().write(5),
    ]

    assert [marks.read(comes(payload)) for payload in strange] == [None] * 6
    assert marks.refused == 6


def test_a_copy_that_overtakes_the_mark_itself_is_not_read():
    marks = OwnMarks()

    assert marks.read(comes(marks.write(5), qos=0)) is None
