from federator.cli.observe.explain import as_text


def test_groups_are_told_apart_from_filters():
    answer = {
        "topic": "jobs/1",
        "next_hops": [],
        "why": "no filter in the federation matches it, as far as we heard",
        "filters": [],
        "groups": [{"group": "g", "filter": "jobs/#", "members": {"1": 2, "3": 1}}],
    }

    assert as_text(answer)[-1] == (
        "  $share/g/jobs/#: to one member of 2 on broker 1, 1 on broker 3"
    )


def test_the_ways_of_a_filter_are_told_with_weight_and_backup():
    way = {"filter": "a", "strategy": "shortest-path", "to": 1, "next_hop": 3}
    way |= {"path/topic": "3-2-1/a", "weight": 3, "backup": "7-6-5-1/a", "backup_weight": 4}
    lost = {"filter": "a", "strategy": "shortest-path", "to": 8, "path/topic": None}
    answer = {"topic": "a", "filters": [{"filter": "a", "core": None, "ways": [way, lost]}]}

    assert as_text(answer)[-2:] == [
        "    shortest-path to 1: path/topic 3-2-1/a, weight 3, backup 7-6-5-1/a (weight 4)",
        "    8 is out of reach",
    ]
