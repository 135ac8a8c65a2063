"""Rules of one leaf change by a reload of its hub, and nothing else does."""

from tests.real.agent.test_reload import reload
from tests.real.flow import running
from tests.real.leaves.test_hub import all_leaves_up, grid_of
from tests.real.plain_agents import gets_through
from tests.real.polling import until
from tests.real.streams import all_came, begin, clients


def leaves(*denied):
    """The leaves of hub 1, as TOML; leaf 11 with what is denied to it."""
    rules = f"deny = {list(denied)}\n".replace("'", '"') if denied else ""
    return f"[[leaves]]\nid = 11\n{rules}[[leaves]]\nid = 12\n"


async def test_what_is_denied_to_a_leaf_by_a_reload_stops_and_comes_again(plain):
    grid = await grid_of(plain)
    hub = grid.agents[1]
    kept = grid.stream(11, 21, topic="secret/plan")
    streams = [grid.stream(*way) for way in ((11, 21), (21, 11), (12, 2))]

    async with running(*clients([kept, *streams])):
        begun = await begin([kept, *streams])
        (event,) = await reload(hub, leaves("secret/#"))
        assert event["changed"] == ["leaves[11].deny: none -> [secret/#]"]

        sender, taker = kept
        stopped = sender.sent + 20  # what was under way then came
        await until(lambda: sender.sent > stopped + 50, "it goes on publishing")
        assert not set(range(stopped, sender.sent)) & set(taker.came)

        await reload(hub, leaves())
        await gets_through(sender, taker)
        sender.pause()
        await all_came(streams, begun[1:])


async def test_a_leaf_that_is_named_anew_waits_for_a_restart_and_rules_do_not(plain):
    grid = await grid_of(plain)
    hub = grid.agents[1]

    events = await reload(hub, leaves("secret/#") + "[[leaves]]\nid = 13\n")

    found = {event["event"]: event for event in events}
    assert found["config.reloaded"]["changed"] == ["leaves[11].deny: none -> [secret/#]"]
    assert found["config.restart_wanted"]["keys"] == ["leaves[13]: not named -> named"]
    assert all_leaves_up(11, 12)(await hub.status())
