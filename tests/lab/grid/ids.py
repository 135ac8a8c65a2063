"""Broker ids from plain numbers, for tests."""

from federator.protocol.types import BrokerId


def ids(*numbers):
    """As a tuple."""
    return tuple(BrokerId(number) for number in numbers)
