"""What would break: read, judged and told."""

import click
import pytest

from federator.cli.observe.topology import Loss, as_document, as_lines, judge, verdict


def page(*links):
    brokers = sorted({id for link in links for id in link})
    return {"brokers": [{"broker": id} for id in brokers], "links": [list(x) for x in links]}


LOLLY = page((1, 2), (2, 3), (1, 3), (3, 4))


def test_who_holds_others_is_told_with_who_is_cut_off():
    outcome = judge(LOLLY, Loss.parse(["remove=3"]))

    assert verdict(outcome) == "BREAKS: the federation falls into 2 parts; cut off: 4"
    assert as_document(outcome)["then"]["parts"] == [[1, 2], [4]]
    assert as_document(outcome)["now"]["articulation_points"] == [3]
    assert as_document(outcome)["now"]["bridges"] == [[3, 4]]


def test_a_loss_that_leaves_a_line_holds_but_only_just():
    outcome = judge(LOLLY, Loss.parse(["cut=2-1", "remove=4"]))

    assert verdict(outcome) == "holds, but then the death of any of these parts it: 3"
    assert not as_document(outcome)["breaks"]


def test_a_loss_that_a_ring_bears_is_told_so():
    ring = page((1, 2), (2, 3), (3, 4), (1, 4), (1, 3), (2, 4))

    outcome = judge(ring, Loss.parse(["remove=4"]))

    assert verdict(outcome) == "holds, and survives any further death"
    assert any(line.split() == ["diameter", "1", "1"] for line in as_lines(outcome))


@pytest.mark.parametrize("text", ["remove=9", "cut=1-4"])
def test_what_nobody_knows_cannot_be_lost(text):
    with pytest.raises(click.UsageError, match=r"no (broker 9|link 1-4)"):
        judge(LOLLY, Loss.parse([text]))
