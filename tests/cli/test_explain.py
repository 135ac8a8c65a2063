from federator.cli.explain import as_text


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
