"""Key files that change while an agent runs: all that is new is taken up, or nothing is.

And what is taken back by them is passed on.
"""

import asyncio

import pytest

from federator.config.reading import load
from federator.protocol.messages.control import Revoked
from federator.protocol.types import BrokerId, ConnId
from federator.runtime.trust import guarding
from federator.runtime.trust.guarding import KeyWatcher, Trust
from federator.runtime.trust.key_maker import KeyMaker
from tests.real.polling import until
from tests.runtime.trust.key_folder import FEDERATION, KeyFolder, followed


class Keys(KeyFolder):
    """The key files of agent 1, and the agent's view of them."""

    def __init__(self, folder):
        super().__init__(folder, broker=1)
        config = folder / "federator.toml"
        config.write_text(
            f"""
            federation = "{FEDERATION}"
            state_dir = "{folder}/state"
            [broker]
            id = 1
            url = "mqtt://127.0.0.1:1883"
            [keys]
            agent_file = "{folder}/own.key"
            federation_files = ["{folder}/federation.pub"]
            revocations_file = "{folder}/revocations"
            """
        )
        state = folder / "state"
        state.mkdir()
        self.trust = Trust(load(config, {}), state)

    def held(self):
        """What the agent goes by: trusted keys, its certificate, revocations."""
        guard = self.trust.guard
        return guard.authority.trusted, guard.ours.data, guard.authority.revocations


@pytest.fixture
def keys(tmp_path):
    return Keys(tmp_path)


@pytest.fixture
def other():
    """The key that a federation goes over to."""
    return KeyMaker.new(FEDERATION)


@pytest.mark.parametrize("wrong", ["issuer", "broker", "revocations"])
def test_one_bad_file_of_several_changes_nothing(keys, other, wrong):
    before = keys.held()

    keys.trusts(other)
    keys.issued_by(
        KeyMaker.new(FEDERATION) if wrong == "issuer" else other,
        broker=2 if wrong == "broker" else 1,
    )
    if wrong == "revocations":
        keys.put("revocations", b"{")
    told = followed(keys.trust)

    assert told == ["trust.keys_not_changed"]
    assert keys.held() == before


def test_when_the_bad_file_is_mended_all_are_taken_up(keys, other):
    keys.trusts(other)
    keys.issued_by(KeyMaker.new(FEDERATION))
    followed(keys.trust)

    certificate = keys.issued_by(other).certificate
    listed = keys.revoked_by(other)
    told = followed(keys.trust)

    assert told == ["trust.certificate_changed", "trust.revocations"]
    assert keys.held() == (frozenset([other.public.key]), certificate, [listed])


def test_revocations_of_a_key_trusted_no_more_do_not_keep_the_new_one_out(keys, other):
    keys.revoked_by(keys.maker)
    followed(keys.trust)

    keys.trusts(other)
    certificate = keys.issued_by(other).certificate
    told = followed(keys.trust)

    assert told == ["trust.certificate_changed", "trust.list_ignored"]
    assert keys.held() == (frozenset([other.public.key]), certificate, [])


NEIGHBOURS = [ConnId(4), ConnId(9)]


def watcher_of(keys):
    """Keeps ``keys``; what it sends, as (connection, message), goes into the list."""
    sent = []
    watcher = KeyWatcher(
        BrokerId(1),
        keys.trust,
        neighbours=lambda: NEIGHBOURS,
        send=lambda conn, message: sent.append((conn, message)),
    )
    return watcher, sent


def test_what_a_neighbour_takes_back_is_passed_on_to_all_until_it_is_known(keys):
    watcher, sent = watcher_of(keys)
    lists = (keys.maker.revoke([bytes(8)], number=1),)

    watcher.on_revoked(Revoked(BrokerId(2), lists))
    watcher.on_revoked(Revoked(BrokerId(3), lists))

    assert sent == [(conn, Revoked(BrokerId(1), lists)) for conn in NEIGHBOURS]


def test_who_comes_up_is_told_alone_and_only_if_something_is_taken_back(keys):
    watcher, sent = watcher_of(keys)

    watcher.pass_on(to=NEIGHBOURS[1])
    assert sent == []

    listed = keys.revoked_by(keys.maker)
    followed(keys.trust)
    watcher.pass_on(to=NEIGHBOURS[1])
    assert sent == [(NEIGHBOURS[1], Revoked(BrokerId(1), (listed,)))]


async def test_each_list_that_a_file_brings_is_found_and_passed_on_once(keys, monkeypatch):
    monkeypatch.setattr(guarding, "FILES_CHECKED_S", 0.001)
    watcher, sent = watcher_of(keys)
    running = asyncio.create_task(watcher.run())

    first = keys.revoked_by(keys.maker)
    await until(lambda: len(sent) >= 2, "the first is passed on")
    second = keys.revoked_by(keys.maker, number=2)
    await until(lambda: len(sent) >= 4, "the second is passed on")
    running.cancel()

    told = [
        (conn, Revoked(BrokerId(1), (each,))) for each in (first, second) for conn in NEIGHBOURS
    ]
    assert sent == told
