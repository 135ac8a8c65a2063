"""Which program is the broker."""

import shutil

import pytest

from federator.errors import LinkError
from lab.grid.processes.broker import MOSQUITTO, find_mosquitto


def test_the_broker_is_the_one_that_is_named(monkeypatch):
    program = shutil.which("true")
    monkeypatch.setenv(MOSQUITTO, program)

    assert find_mosquitto() == program


@pytest.mark.parametrize("named", ["/nowhere/mosquitto", "true", "/tmp"])
def test_a_named_broker_that_is_no_program_is_never_replaced_by_another(monkeypatch, named):
    monkeypatch.setenv(MOSQUITTO, named)

    with pytest.raises(LinkError, match=f"FEDERATOR_MOSQUITTO={named}: wanted the whole path"):
        find_mosquitto()
