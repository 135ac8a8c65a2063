"""Key files that change while an agent runs: all that is new is taken up, or nothing is."""

import os
import time

import pytest
import structlog

from federator.config import load
from federator.protocol.trust.papers import RevocationPaper, write_paper
from federator.runtime.key_office import KeyOffice
from federator.runtime.trust import Trust

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

    def revoked_by(self, office):
        listed = office.revoke([bytes(8)], number=1)
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
