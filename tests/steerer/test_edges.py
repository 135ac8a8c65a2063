"""What plans say of the edge, whom they say it to, and what is told of it."""

import pytest
from structlog.testing import capture_logs

from federator.config.all_brokers.steerer import KeepSettings
from federator.config.validation import validated
from federator.protocol.messages.steering import STEERING_VERSION, FlowLoad, KeptLoad, Load, Plan
from federator.steerer.edges import SETTLED_MS, Edges, Kept

HUB, ONE, TWO = 7, 1, 2
COLLECTS = ("city/#",)


def edges(hub="7", policy="ns"):
    return Edges(KeepSettings(hub=hub, collects=COLLECTS, policy=policy))


def load(broker, *flows, name="", kept=None):
    return Load(STEERING_VERSION, "fed", broker, 1, 0, links=(), flows=flows, name=name, kept=kept)


def flow(*filters, to=(HUB,), meshed=False):
    return FlowLoad(filters, to, rate=1_000.0, error=0.0, publications=2.0, meshed=meshed)


def test_the_hub_collects_and_all_others_keep():
    told = edges(policy="lp")

    assert not told.follow([load(ONE)], now_ms=0)

    assert told.plan_of(HUB) == ("", COLLECTS)
    assert told.plan_of(ONE) == ("lp", ())
    told.end()
    assert told.plan_of(HUB) == told.plan_of(ONE) == ("", ())


def test_what_differs_in_tables_only_is_one_policy():
    told = edges(policy="ep")
    told.follow([], now_ms=0)

    assert told.plan_of(ONE) == ("ns", ())


def test_without_a_hub_nothing_is_to_be_kept():
    told = Edges(KeepSettings())

    assert not told.follow([load(ONE)], now_ms=0)
    assert (told.plan_of(ONE), told.text(), told.snapshot()["policy"]) == (("", ()), [], None)


def test_a_hub_is_found_by_its_name_and_not_forgotten_while_it_is_silent():
    told = edges(hub="plant")
    assert not told.follow([load(ONE)], now_ms=0)
    assert "no broker" in told.text()[0]

    told.follow([load(ONE), load(HUB, name="plant")], now_ms=1)
    told.follow([load(ONE)], now_ms=2)
    assert told.plan_of(HUB) == ("", COLLECTS)

    told.follow([load(ONE, name="plant"), load(HUB, name="plant")], now_ms=3)
    assert told.plan_of(HUB) == told.plan_of(ONE) == ("", ())
    assert "2 brokers" in told.snapshot()["why"]


def test_who_steers_next_goes_on_with_the_hub_of_before():
    told = edges(hub="plant")
    plans = [
        Plan(STEERING_VERSION, "fed", broker, "s", 0, 1, 0, 1_000, collects=collects)
        for broker, collects in ((ONE, ()), (TWO, ("other/#",)), (HUB, COLLECTS))
    ]

    told.adopt(plans)

    assert told.plan_of(HUB) == ("", COLLECTS)
    assert not told.follow([load(HUB, name="plant")], now_ms=0)


def test_a_dry_run_counts_the_flows_that_only_the_hub_collects():
    told = edges()
    flows = (
        flow("city/#"),
        flow("city/#", "city/1"),
        flow("city/#", to=(ONE, HUB)),
        flow("city/#", meshed=True),
        flow("other/#"),
    )
    told.follow([load(TWO, *flows)], now_ms=0)

    assert told.would_keep() == Kept(2.0, 1_000.0)
    assert told.text() == [
        "topics at the edge: 2 publications/s, 1 kbit/s that only 7 collects would be kept"
    ]
    most = edges(policy="lp")
    most.follow([load(TWO, *flows)], now_ms=0)
    assert "at most" in most.text()[0]


def test_what_is_kept_is_told_when_it_has_settled_and_again_when_it_is_another():
    told = edges()
    agents = [
        load(HUB, kept=KeptLoad(True, collects=COLLECTS)),
        load(ONE, kept=KeptLoad(True, 10.0, 8_000.0)),
        load(TWO, kept=KeptLoad(False, why_not="its operator does not")),
        load(3),
    ]
    with capture_logs() as logs:
        for now_ms in range(0, 3 * SETTLED_MS, 2_000):
            told.follow(agents, now_ms=now_ms)
    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("steer.not_placed", "warning"),
        ("steer.kept", "info"),
    ]
    assert (logs[0]["broker"], logs[1]["brokers"], logs[1]["rate"]) == (TWO, 1, 8_000)
    snapshot = told.snapshot()
    assert (snapshot["collected"], snapshot["keep"]) == (["city/#"], [ONE])
    assert snapshot["refuse"] == [{"broker": TWO, "why": "its operator does not"}]
    assert told.kept() == Kept(10.0, 8_000.0)

    with capture_logs() as logs:
        for now_ms in range(0, 2 * SETTLED_MS, 2_000):
            told.follow(agents[:2], now_ms=now_ms)
    assert [each["event"] for each in logs] == ["steer.kept"]


@pytest.mark.parametrize("hub", [7, "7", "plant 7"])
def test_a_hub_is_a_number_or_a_name(hub):
    assert validated(KeepSettings, {"hub": hub, "collects": COLLECTS}).hub == str(hub)
