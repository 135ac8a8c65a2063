"""What of our client ids people are told."""

import pytest

from federator.protocol.client_names import is_secret, shown
from federator.runtime.mqtt.secret_names import secret_name

SECRET = "0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"federator-1-data-{SECRET}", "federator-1-data"),
        (f"federator-1-to-::1-1883-ctl-{SECRET}", "federator-1-to-::1-1883-ctl"),
        (f"17: federator-1-ctl-{SECRET} 0 a/b", "17: federator-1-ctl 0 a/b"),
        (f"federator-1-a-{SECRET} federator-2-b-{SECRET}.", "federator-1-a federator-2-b."),
        (f"sensor-{SECRET}", f"sensor-{SECRET}"),
        (f"federator-1-data-{SECRET}0", f"federator-1-data-{SECRET}0"),
        ("federator-1-data", "federator-1-data"),
    ],
)
def test_our_names_are_told_without_what_is_secret_and_clients_names_whole(text, told):
    assert shown(text) == told


def test_a_name_that_is_drawn_ends_in_a_secret_of_its_own():
    one, other = (secret_name("1-tap") for _ in range(2))

    assert one != other
    assert is_secret(one.rpartition("-")[2])
    assert shown(one) == shown(other) == "federator-1-tap"
