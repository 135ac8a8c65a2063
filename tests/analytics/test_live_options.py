import pytest
from federator_analytics.errors import AnalyticsError
from federator_analytics.sources.live.link import read_options


def test_names_are_not_case_sensitive_and_defaults_hold():
    found = read_options({"Broker": "mqtt://a, mqtts://[::1]:99", "federation": "city"})

    assert [place.address for place in found.places] == [("a", 1883), ("::1", 99)]
    assert [place.secure for place in found.places] == [False, True]
    assert (found.federation, found.batches_max, found.fail_on_loss) == ("city", 600, True)
    assert found.discover is True
    assert found.latest is False


def test_a_password_comes_from_a_file_and_is_shown_nowhere(tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")

    options = {"username": "u", "passwordFile": str(tmp_path / "secret")}
    found = read_options({"broker": "mqtt://a", **options})

    assert found.places[0].access.password == "s3cret"
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("told", "code", "text"),
    [
        ({}, 64, "option broker is missing"),
        ({"broker": "http://a"}, 64, "broker http://a: mqtt://HOST:PORT or"),
        ({"broker": "mqtt://u:p@a"}, 64, "broker at a: a user in the URL: use the options"),
        ({"broker": "mqtt://a:99999"}, 64, "Port out of range"),
        ({"broker": "mqtt://a", "brokre": "x"}, 64, "option brokre is not known"),
        ({"broker": "mqtt://a", "federation": "a/b"}, 64, "federation 'a/b'"),
        ({"broker": "mqtt://a", "answerTimeoutMs": "0"}, 64, "answertimeoutms is 0, 1 to"),
        ({"broker": "mqtt://a", "answerTimeoutMs": "²"}, 64, "answertimeoutms is ²"),
        ({"broker": "mqtt://a", "discover": "maybe"}, 64, "discover is maybe, true or false"),
        ({"broker": "mqtt://a", "startingOffsets": "7"}, 64, "earliest or latest wanted"),
        ({"broker": "mqtt://a", "password": "x"}, 64, "but no username"),
        ({"broker": "mqtt://a", "certFile": "x"}, 64, "certFile and keyFile are wanted together"),
        ({"broker": "mqtt://a", "caFile": "/nowhere"}, 66, "caFile /nowhere: No such file"),
    ],
)
def test_what_cannot_be_used_is_named(told, code, text):
    with pytest.raises(AnalyticsError, match="federator_mqtt") as error:
        read_options(told)

    assert text in str(error.value)
    assert error.value.exit_code == code
