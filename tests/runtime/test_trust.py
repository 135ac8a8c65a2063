"""Key files that change while an agent runs: all that is new is taken up, or nothing is.

And what is taken back by them is passed on.
"""

import asyncio
import os
import time

import pytest
import structlog

from federator.config import load
from federator.protocol.messages import Revoked
from federator.protocol.trust.papers import RevocationPaper, write_paper
from federator.protocol.types import BrokerId, ConnId
from federator.runtime import key_keeper
from federator.runtime.key_keeper import KeyKeeper
from federator.runtime.key_office import KeyOffice
from federator.runtime.trust import Trust
from tests.real.polling import until

FEDERATION = "fed"


class Keys:
    """The key files of agent 1, and the agent's view of them.

    Attributes:
        office: Whose key is trusted, and who issued the certificate, at first.
    """

    def __init__(self, folder):
        self.folder = folder
        self.office = KeyOffice.new(FEDERATION)
        self._writes = 0
        self.trusts(self.office)
        self.issued_by(self.office)
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

    def trusts(self, office):
        self.put("federation.pub", write_paper(office.public))

    def issued_by(self, office, *, broker=1):
        papers, _ = office.issue(broker, days=1, now_s=int(time.time()))
        self.put("agent.key", write_paper(papers))
        return papers.certificate

    def revoked_by(self, office, *, number=1):
        listed = office.revoke([bytes(8)], number=number)
        self.put("revocations", write_paper(RevocationPaper(federation="fed", revocations=listed)))
        return listed

    def held(self):
        """What the agent goes by: trusted keys, its certificate, revocations."""
        guard = self.trust.guard
        return guard.authority.trusted, guard.ours.data, guard.authority.revocations

    def look(self):
        """Let the agent look; the names of what it logs."""
        with structlog.testing.capture_logs() as logs:
            self.trust.look()
        return [line["event"] for line in logs if line["event"] != "trust.expires"]


@pytest.fixture
def keys(tmp_path):
    return Keys(tmp_path)


@pytest.fixture
def other():
    """The key that a federation goes over to."""
    return KeyOffice.new(FEDERATION)


@pytest.mark.parametrize("wrong", ["issuer", "broker", "revocations"])
def test_one_bad_file_of_several_changes_nothing(keys, other, wrong):
    before = keys.held()

    keys.trusts(other)
    keys.issued_by(
        KeyOffice.new(FEDERATION) if wrong == "issuer" else other,
        broker=2 if wrong == "broker" else 1,
    )
    if wrong == "revocations":
        keys.put("revocations", b"{")
    told = keys.look()

    assert told == ["trust.keys_not_changed"]
    assert keys.held() == before


def test_when_the_bad_file_is_mended_all_are_taken_up(keys, other):
    keys.trusts(other)
    keys.issued_by(KeyOffice.new(FEDERATION))
    keys.look()

    certificate = keys.issued_by(other)
    listed = keys.revoked_by(other)
    told = keys.look()

    assert told == ["trust.certificate_changed", "trust.revocations"]
    assert keys.held() == (frozenset([other.public.key]), certificate, [listed])


def test_revocations_of_a_key_trusted_no_more_do_not_keep_the_new_one_out(keys, other):
    keys.revoked_by(keys.office)
    keys.look()

    keys.trusts(other)
    certificate = keys.issued_by(other)
    told = keys.look()

    assert told == ["trust.certificate_changed", "trust.list_ignored"]
    assert keys.held() == (frozenset([other.public.key]), certificate, [])


NEIGHBOURS = [ConnId(4), ConnId(9)]


def keeper_of(keys):
    """Keeps ``keys``; what it sends, as (connection, message), goes into the list."""
    sent = []
    keeper = KeyKeeper(
        BrokerId(1),
        keys.trust,
        neighbours=lambda: NEIGHBOURS,
        send=lambda conn, message: sent.append((conn, message)),
    )
    return keeper, sent


def test_what_a_neighbour_takes_back_is_passed_on_to_all_until_it_is_known(keys):
    keeper, sent = keeper_of(keys)
    lists = (keys.office.revoke([bytes(8)], number=1),)

    keeper.on_revoked(Revoked(BrokerId(2), lists))
    keeper.on_revoked(Revoked(BrokerId(3), lists))

    assert sent == [(conn, Revoked(BrokerId(1), lists)) for conn in NEIGHBOURS]


def test_who_comes_up_is_told_alone_and_only_if_something_is_taken_back(keys):
    keeper, sent = keeper_of(keys)

    keeper.pass_on(to=NEIGHBOURS[1])
    assert sent == []

    listed = keys.revoked_by(keys.office)
    keys.look()
    keeper.pass_on(to=NEIGHBOURS[1])
    assert sent == [(NEIGHBOURS[1], Revoked(BrokerId(1), (listed,)))]


async def test_each_list_that_a_file_brings_is_found_and_passed_on_once(keys, monkeypatch):
    monkeypatch.setattr(key_keeper, "LOOK_S", 0.001)
    keeper, sent = keeper_of(keys)
    running = asyncio.create_task(keeper.run())

    first = keys.revoked_by(keys.office)
    await until(lambda: len(sent) >= 2, "the first is passed on")
    second = keys.revoked_by(keys.office, number=2)
    await until(lambda: len(sent) >= 4, "the second is passed on")
    running.cancel()

    told = [
        (conn, Revoked(BrokerId(1), (each,))) for each in (first, second) for conn in NEIGHBOURS
    ]
    assert sent == told
