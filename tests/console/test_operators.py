"""Who may sign in at a console."""

import asyncio

import pytest

from federator.config.all_brokers.console import OperatorsSettings
from federator.console.operators import Operators, hashed, matches, read
from federator.errors import ConfigError

PASSWORD = "correct horse battery"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "operators"
    path.write_text(f"# who may drain\nada:{hashed(PASSWORD)}\n\n")
    return path


def test_a_name_and_its_password_are_taken_and_nothing_else(file):
    operators = Operators(OperatorsSettings(file=file))

    async def tried(name, password):
        return await operators.is_one(name, password)

    assert asyncio.run(tried("ada", PASSWORD))
    assert not asyncio.run(tried("ada", PASSWORD + "!"))
    assert not asyncio.run(tried("bob", PASSWORD))
    assert not asyncio.run(tried("", ""))


def test_two_hashes_of_one_password_differ():
    one, other = hashed(PASSWORD), hashed(PASSWORD)

    assert one != other
    assert matches(one, PASSWORD)
    assert matches(other, PASSWORD)
    assert PASSWORD not in one


def test_an_endless_password_is_refused_unhashed():
    assert not matches(hashed(PASSWORD), "x" * 10_000_000)


def test_without_a_file_nobody_can_sign_in():
    operators = Operators(OperatorsSettings())

    assert not operators.any
    assert not asyncio.run(operators.is_one("ada", PASSWORD))


def test_attempts_are_counted_by_the_minute_and_half_are_left_to_other_addresses():
    operators = Operators(OperatorsSettings(attempts_per_min=4))

    def tried(address, now_ms=1_000):
        return operators.may_try(address, "ada", "", now_ms)

    assert [tried("greedy") for _ in range(3)] == [True, True, False]
    assert [tried("other") for _ in range(3)] == [True, True, False]
    assert not tried("third")
    assert tried("greedy", 61_000)
    assert operators.refused == 3


def test_where_an_operator_signed_in_before_strangers_keep_that_one_out_of_nothing(file):
    operators = Operators(OperatorsSettings(file=file, attempts_per_min=4))
    badge = operators.badge("ada")
    for address in "abcdefgh":
        operators.may_try(address, "ada", "", 1_000)

    assert not operators.may_try("home", "ada", "", 1_000)
    for forged in (badge + "0", f"00{badge}", badge.partition(".")[0], ".", "x" * 10_000, "é.é"):
        assert not operators.may_try("home", "ada", forged, 1_000)
    assert not operators.may_try("home", "bob", badge, 1_000)
    assert [operators.may_try("home", "ada", badge, 1_000) for _ in range(3)] == [True, True, False]

    file.write_text(f"ada:{hashed('another horse')}")
    assert not operators.may_try("home", "ada", badge, 1_000)


def test_a_session_ends_by_signing_out_with_its_time_and_with_the_password(file):
    operators = Operators(OperatorsSettings(file=file, session_s=60))
    gone, late, kept = (operators.begin("ada", 1_000) for _ in range(3))
    operators.end(gone)
    operators.end("of nobody")

    assert operators.whose(gone, 1_001) is None
    assert operators.whose("", 1_001) is None
    assert operators.whose(late, 61_000) is None
    assert operators.whose(kept, 60_999) == "ada"
    file.write_text(f"ada:{hashed('another horse')}")
    assert operators.whose(kept, 60_999) is None
    file.unlink()
    assert operators.whose(kept, 60_999) is None


@pytest.mark.parametrize(
    "line", ["ada", "ada:secret", "a b:scrypt$16384$8$1$AAAA$AAAA", "ada:scrypt$1$8$1$AAAA$AAAA"]
)
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "operators"
    path.write_text(f"# first\n{line}\n")

    with pytest.raises(ConfigError, match="operators:2: no name:hash"):
        read(path)
