"""Whom messages are about: nothing that an agent says of others is overlooked."""

import msgspec
import pytest

from federator.protocol.messages.codec import kind_of
from federator.protocol.messages.control import CoreAnn, Hello, RepairRequest, Solicit, Wave
from federator.protocol.messages.subjects import subjects
from tests.protocol.hostile import UNLINKED, samples


@pytest.mark.parametrize(
    ("message", "about"),
    [
        (Hello(1, 7, 1, 1, 1, "mqtt://h", ()), set()),
        (Solicit(7, 9, 1, 1, 3), {9}),
        (CoreAnn(7, 9, 0, 1, 1, 0, True, (), (), 0, 0, path=(7, 8, 9)), {7, 8, 9}),
        (RepairRequest(9, 1, (7, 8), ((bytes(8), 0, 0),)), {7, 8, 9}),
        (Wave(7, 9, 1, 1, None, (("a", 5),)), {9}),
    ],
)
def test_who_is_named_is_found(message, about):
    assert subjects(message) == about


def test_every_message_that_names_a_broker_beside_its_sender_is_about_it():
    """Of each kind that agents say: fields that hold ids are known here, or hold our own."""
    for message in samples(UNLINKED):
        names = {field.name for field in msgspec.structs.fields(message)}
        if names & {"core", "origin", "broker", "path", "route"}:
            assert subjects(message), kind_of(message)
