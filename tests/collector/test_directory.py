"""Which brokers a collector connects to."""

from federator.collector.directory import BROKERS_MAX, Dial, Directory, HangUp
from federator.protocol.messages.guide import Guide, GuideBroker

ONE, TWO, THREE = "mqtt://one", "mqtt://two", "mqtt://three"


def guide(*brokers, of=1):
    told = tuple(
        each if isinstance(each, GuideBroker) else GuideBroker(each[0], each[1]) for each in brokers
    )
    return Guide(1, "fed", of, 1, 1, 1, told)


def known(directory, url=ONE, broker=1):
    assert directory.on_identity(url, broker) == (True, [])
    return directory


def test_one_broker_finds_the_others():
    directory = known(Directory([ONE], only=False))

    orders = directory.on_guide(guide((1, "mqtt://elsewhere"), (2, TWO), (3, THREE)))

    assert orders == [Dial(2, TWO), Dial(3, THREE)]
    assert directory.on_guide(guide((2, TWO), (3, THREE))) == []
    assert directory.on_identity(TWO, 2) == (True, [])


def test_with_only_nobody_is_looked_for():
    directory = known(Directory([ONE], only=True))

    assert directory.on_guide(guide((2, TWO))) == []


def test_brokers_without_an_address_of_their_own_are_told():
    directory = known(Directory([ONE], only=False))

    directory.on_guide(guide((1, ""), (2, ""), (3, ONE), (4, TWO), (5, TWO)))

    assert directory.unreached == [2, 3, 5]


def test_a_named_broker_that_was_found_otherwise_is_read_by_its_name():
    directory = known(Directory([ONE, TWO], only=False))
    assert directory.on_guide(guide((2, "mqtt://two.long.name"))) == [
        Dial(2, "mqtt://two.long.name")
    ]

    believed = directory.on_identity(TWO, 2)

    assert believed == (True, [HangUp("mqtt://two.long.name")])
    assert directory.on_guide(guide((2, "mqtt://two.long.name"))) == []


def test_two_that_claim_one_id_are_not_both_believed():
    directory = known(Directory([ONE, TWO], only=False))

    assert directory.on_identity(TWO, 1) == (False, [])


def test_who_is_somebody_else_than_the_guide_said_is_not_believed():
    directory = known(Directory([ONE], only=False))
    directory.on_guide(guide((2, TWO)))

    assert directory.on_identity(TWO, 3) == (False, [])
    assert directory.on_identity(TWO, 2) == (True, [])


def test_a_named_one_may_come_back_as_another_but_not_change_while_connected():
    directory = known(Directory([ONE], only=False))

    assert directory.on_identity(ONE, 9) == (False, [])
    directory.on_down(ONE)

    assert directory.on_identity(ONE, 9) == (True, [])


def test_a_new_address_is_tried_only_when_the_old_one_fails():
    directory = known(Directory([ONE], only=False))
    directory.on_guide(guide((2, TWO)))

    assert directory.on_guide(guide((2, THREE))) == []
    assert directory.on_guide(guide((2, THREE)), failing={TWO}) == [HangUp(TWO), Dial(2, THREE)]


def test_an_address_of_no_use_is_given_up_and_the_next_guide_may_tell_another():
    directory = known(Directory([ONE], only=False))
    directory.on_guide(guide((2, "http://two")))

    directory.on_failed(2)

    assert directory.unreached == [2]
    assert directory.on_guide(guide((2, TWO))) == [Dial(2, TWO)]


def test_a_guide_that_invents_brokers_meets_a_bound():
    directory = known(Directory([ONE], only=False))

    orders = directory.on_guide(guide(*((n, f"mqtt://h{n}") for n in range(2, 4_000))))

    assert len(orders) == BROKERS_MAX - 1
    assert directory.refused == 3_998 - len(orders)
    assert len(directory.unreached) <= BROKERS_MAX


class Counted(str):
    """An address that counts how often one is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_guide_of_very_many_brokers_costs_as_much_as_it_is_long():
    directory = known(Directory([ONE], only=False))

    directory.on_guide(guide(*((n, Counted(f"mqtt://h{n}")) for n in range(2, 4_000))))

    assert Counted.compared < 3 * 4_000
