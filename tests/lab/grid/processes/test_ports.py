"""Ports that are chosen for what starts later."""

import json
import socket
import subprocess
import sys
from collections import deque

import pytest

from federator.errors import LinkError
from lab.grid.processes import ports
from lab.grid.processes.ports import free_ports

AMONG = range(19_900, 19_903)


@pytest.fixture(autouse=True)
def reserved(monkeypatch):
    """What these tests reserve, and no longer than they last."""
    ours = deque()
    monkeypatch.setattr(ports, "_reserved", ours)
    yield
    for each in ours:
        each.close()


def test_a_port_that_is_held_is_passed_over():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", AMONG[1]))

        assert sorted(free_ports(2, among=AMONG)) == [AMONG[0], AMONG[2]]


def test_no_port_is_given_twice_not_even_to_another_process():
    (port,) = free_ports(1, among=AMONG)
    ask = f"from lab.grid.processes.ports import free_ports; print(free_ports(2, among={AMONG}))"
    others = json.loads(subprocess.check_output([sys.executable, "-c", ask]))

    assert sorted([port, *others]) == list(AMONG)
    with pytest.raises(LinkError, match="2 free ports"):
        free_ports(3, among=AMONG)


def test_of_many_only_the_latest_stay_reserved(monkeypatch):
    monkeypatch.setattr(ports, "RESERVED_MAX", 1)
    first = free_ports(1, among=AMONG[:1])
    free_ports(1, among=AMONG[1:])

    assert free_ports(1, among=AMONG[:1]) == first
