import pytest

from federator.protocol.filters import (
    is_match_all,
    may_travel,
    validate_filter,
    validate_topic,
)


@pytest.mark.parametrize("validate", [validate_filter, validate_topic])
@pytest.mark.parametrize(("text", "why"), [("a\0b", "null character"), ("a/\ud800", "surrogate")])
def test_what_is_no_text_is_refused_with_one_line_that_says_why(validate, text, why):
    with pytest.raises(ValueError, match=why) as refusal:
        validate(text)

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


def test_an_error_message_repeats_little_of_a_long_text_and_no_line_breaks():
    with pytest.raises(ValueError, match="whole level") as refusal:
        validate_filter("\u2028" + "x" * 60_000 + "+")

    assert len(str(refusal.value)) < 200
    assert "\u2028" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_nothing_with_a_dollar_travels():
    assert not any(map(may_travel, ["$SYS/#", "$fed/f/data", "$share/g/a", "$"]))
    assert all(map(may_travel, ["a/$b", "#", "+/$SYS", "/$x"]))


def test_match_all_has_two_names():
    assert is_match_all("#")
    assert is_match_all("+/#")
    assert not any(map(is_match_all, ["+", "+/+/#", "a/#", "/#", "$share/g/#"]))


@pytest.mark.parametrize(
    "character",
    ["\x01", *"\t\n\x1f\x7f\x9f\ufdd0\ufdef\ufffe\uffff\U0010ffff"],
    ids=ascii,
)
def test_characters_for_which_brokers_close_the_connection_are_refused(character):
    for validate in (validate_filter, validate_topic):
        with pytest.raises(ValueError, match="is no character brokers take"):
            validate(f"a/b{character}c")


def test_other_unusual_characters_are_taken():
    for text in ("\xa0", "\ufeff", "\ue000", "\U0001f600", " ", "a b"):
        assert validate_filter(text) == text
