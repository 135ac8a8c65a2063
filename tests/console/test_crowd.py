"""How much those who look may take."""

from federator.console.crowd import ADDRESSES_MAX, LOOKS_PER_S, QUESTIONS_PER_S, Crowd


def test_one_address_leaves_half_of_the_places_to_others():
    crowd = Crowd(4)

    assert [crowd.enter("greedy") for _ in range(4)] == [True, True, False, False]
    assert [crowd.enter(name) for name in ("a", "b", "c")] == [True, True, False]
    assert (crowd.pages, crowd.turned_away) == (4, 3)

    crowd.leave("greedy")
    assert crowd.enter("c")


def test_the_only_place_there_is_can_be_had():
    assert Crowd(1).enter("a")


def test_one_address_leaves_half_of_the_questions_to_others():
    crowd = Crowd(4)
    greedy = [crowd.may_ask("agents", "greedy", 1_000) for _ in range(100)]
    others = [crowd.may_ask("agents", "other", 1_000) for _ in range(100)]

    assert sum(greedy) == sum(others) == QUESTIONS_PER_S // 2
    assert not crowd.may_ask("agents", "third", 1_000)
    assert crowd.may_ask("us", "third", 1_000)
    assert crowd.asked == QUESTIONS_PER_S + 1
    assert crowd.refused == 200 - QUESTIONS_PER_S + 1


def test_many_addresses_share_one_bound_and_are_not_all_remembered():
    crowd = Crowd(4)
    taken = sum(crowd.may_ask("us", f"address {n}", 1_000) for n in range(2 * ADDRESSES_MAX))

    assert taken == LOOKS_PER_S
    assert len(crowd._budgets["us"]._of_one) == ADDRESSES_MAX
