"""Key files that change while an agent runs: all that is new is taken up, or nothing is.

And what is taken back by them is passed on.
"""

import asyncio
import os
import time

import pytest
import structlog

from federator.config.reading import load
from federator.protocol.messages.control import Revoked
from federator.protocol.trust.key_files import RevocationFile, write_key_file
from federator.protocol.types import BrokerId, ConnId
from federator.runtime.trust import guarding
from federator.runtime.trust.guarding import KeyWatcher, Trust
from federator.runtime.trust.key_maker import KeyMaker
from tests.real.polling import until

FEDERATION = "fed"


class Keys:
    """The key files of agent 1, and the agent's view of them.

    Attributes:
        maker: Whose key is trusted, and who issued the certificate, at first.
    """

    def __init__(self, folder):
        self.folder = folder
        self.maker = KeyMaker.new(FEDERATION)
        self._writes = 0
        self.trusts(self.maker)
        self.issued_by(self.maker)
        config = folder / "federator.toml"
        config.write_text(
            f"""
            federation = "{FEDERATION}"
            state_dir = "{folder}/state"
            [broker]
            id = 1
            url = "mqtt://127.0.0.1:1883"
            [keys]
            agent_file = "{folder}/agent.key"
            federation_files = ["{folder}/federation.pub"]
            revocations_file = "{folder}/revocations"
            """
        )
        state = folder / "state"
        state.mkdir()
        self.trust = Trust(load(config, {}), state)

    def put(self, name, content):
        """Replace a file; its time says that it is another one, however fast we are."""
        path = self.folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def trusts(self, maker):
        self.put("federation.pub", write_key_file(maker.public))

    def issued_by(self, maker, *, broker=1):
        keys, _ = maker.issue(broker, days=1, now_s=int(time.time()))
        self.put("agent.key", write_key_file(keys))
        return keys.certificate

    def revoked_by(self, maker, *, number=1):
        listed = maker.revoke([bytes(8)], number=number)
        self.put(
            "revocations", write_key_file(RevocationFile(federation="fed", revocations=listed))
        )
        return listed

    def held(self):
        """What the agent goes by: trusted keys, its certificate, revocations."""
        guard = self.trust.guard
        return guard.authority.trusted, guard.ours.data, guard.authority.revocations

    def follow_files(self):
        """Let the agent follow its files; the names of what it logs."""
        with structlog.testing.capture_logs() as logs:
            self.trust.follow_files()
        return [line["event"] for line in logs if line["event"] != "trust.expires"]


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
    told = keys.follow_files()

    assert told == ["trust.keys_not_changed"]
    assert keys.held() == before


def test_when_the_bad_file_is_mended_all_are_taken_up(keys, other):
    keys.trusts(other)
    keys.issued_by(KeyMaker.new(FEDERATION))
    keys.follow_files()

    certificate = keys.issued_by(other)
    listed = keys.revoked_by(other)
    told = keys.follow_files()

    assert told == ["trust.certificate_changed", "trust.revocations"]
    assert keys.held() == (frozenset([other.public.key]), certificate, [listed])


def test_revocations_of_a_key_trusted_no_more_do_not_keep_the_new_one_out(keys, other):
    keys.revoked_by(keys.maker)
    keys.follow_files()

    keys.trusts(other)
    certificate = keys.issued_by(other)
    told = keys.follow_files()

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
    keys.follow_files()
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
