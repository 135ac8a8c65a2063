import re

import pytest

from federator.protocol.filters import (
    is_match_all,
    may_travel,
    validate_filter,
    validate_topic,
    without_share,
)


@pytest.mark.parametrize(
    "filter",
    [
        # OASIS MQTT 5.0, 4.7.1.2 and 4.7.1.3
        "sport/tennis/player1/#",
        "sport/#",
        "#",
        "sport/tennis/#",
        "+",
        "+/tennis/#",
        "sport/+/player1",
        # 4.7.2 and 4.7.3
        "$SYS/#",
        "$SYS/monitor/+",
        "/finance",
        "/",
        "Accounts payable",
        # 4.8.2
        "$share/consumer1/sport/tennis/+",
        "$share/consumer1//finance",
        "$share/g/#",
        "$sharename",
        "ÿ/日本/😀",
    ],
)
def test_a_filter_of_the_specification_is_accepted_as_it_is(filter):
    assert validate_filter(filter) == filter


@pytest.mark.parametrize(
    ("filter", "why"),
    [
        ("", "empty"),
        ("sport/tennis#", "'#' must be the whole last level"),
        ("sport/tennis/#/ranking", "'#' must be the whole last level"),
        ("##", "'#' must be the whole last level"),
        ("#/#", "'#' must be the whole last level"),
        ("#/", "'#' must be the whole last level"),
        ("a/#b", "'#' must be the whole last level"),
        ("sport+", "'+' must be a whole level"),
        ("a/++", "'+' must be a whole level"),
        ("+a/b", "'+' must be a whole level"),
        ("a\0b", "null character"),
        ("a/\ud800", "surrogate"),
        ("$share//a", "share name"),
        ("$share/", "share name"),
        ("$share/g+/a", "share name"),
        ("$share/#/a", "share name"),
        ("$share/g", "no filter follows"),
        ("$share/g/", "no filter follows"),
        ("$share/g/a#", "'#' must be"),
        ("$share/g/a+", "'+' must be"),
    ],
)
def test_a_malformed_filter_is_refused_with_one_line_that_says_why(filter, why):
    with pytest.raises(ValueError, match=re.escape(why)) as refusal:
        validate_filter(filter)

    assert "\n" not in str(refusal.value)
    str(refusal.value).encode()


@pytest.mark.parametrize("validate", [validate_filter, validate_topic])
def test_length_is_counted_in_utf8_bytes_up_to_65535(validate):
    longest = "é" * 32_767 + "a"

    assert validate(longest) == longest
    with pytest.raises(ValueError, match="65536 bytes, 65535 are allowed"):
        validate(longest + "a")


@pytest.mark.parametrize("validate", [validate_filter, validate_topic])
def test_levels_are_limited_as_in_mosquitto(validate):
    deepest = "/" * 200

    assert validate(deepest) == deepest
    with pytest.raises(ValueError, match="202 levels, 201 are allowed"):
        validate(deepest + "/")
    assert validate(deepest + "/", levels_max=202)


def test_an_error_message_repeats_little_of_a_long_text_and_no_line_breaks():
    with pytest.raises(ValueError, match="whole level") as refusal:
        validate_filter("\u2028" + "x" * 60_000 + "+")

    assert len(str(refusal.value)) < 200
    assert "\u2028" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("topic", ["a", "/", "/finance", "$SYS/x", "ACCOUNTS", "a b/c"])
def test_a_topic_is_accepted_as_it_is(topic):
    assert validate_topic(topic) == topic


@pytest.mark.parametrize(
    ("topic", "why"),
    [("", "empty"), ("a/+", "wildcards"), ("#", "wildcards"), ("\0", "null"), ("\udfff", "UTF-8")],
)
def test_a_malformed_topic_is_refused(topic, why):
    with pytest.raises(ValueError, match=why):
        validate_topic(topic)


@pytest.mark.parametrize(
    ("filter", "shared"),
    [
        ("$share/g/a/+/#", "a/+/#"),
        ("$share/g//finance", "/finance"),
        ("$share/g/$SYS/x", "$SYS/x"),
        ("a/$share/g/b", "a/$share/g/b"),
        ("$shared/g/b", "$shared/g/b"),
        ("plain", "plain"),
    ],
)
def test_a_shared_subscription_is_interest_in_the_filter_it_shares(filter, shared):
    assert without_share(filter) == shared


def test_nothing_with_a_dollar_travels():
    assert not any(map(may_travel, ["$SYS/#", "$fed/f/data", "$share/g/a", "$"]))
    assert all(map(may_travel, ["a/$b", "#", "+/$SYS", "/$x"]))


def test_match_all_has_two_names():
    assert is_match_all("#")
    assert is_match_all("+/#")
    assert not any(map(is_match_all, ["+", "+/+/#", "a/#", "/#", "$share/g/#"]))


@pytest.mark.parametrize(
    "character",
    [
        "\x01",
        "\t",
        "\n",
        "\x1f",
        "\x7f",
        "\x9f",
        "\ufdd0",
        "\ufdef",
        "\ufffe",
        "\uffff",
        "\U0010ffff",
    ],
    ids=ascii,
)
def test_characters_for_which_brokers_close_the_connection_are_refused(character):
    for validate in (validate_filter, validate_topic):
        with pytest.raises(ValueError, match="is no character brokers take"):
            validate(f"a/b{character}c")


def test_other_unusual_characters_are_taken():
    for text in ("\xa0", "\ufeff", "\ue000", "\U0001f600", " ", "a b"):
        assert validate_filter(text) == text
