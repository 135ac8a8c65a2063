"""Every kind of kept file, damaged at random: what is sound is read, and the rest is told."""

import os
import random
import shutil

import pytest
from structlog.testing import capture_logs

from federator.runtime.storage import damage
from federator.runtime.storage.inventory import Inventory
from tests.runtime.storage import kept

CASES = 100

RECORDS = [
    kept.Log, kept.Page, kept.Journal, kept.Filters, kept.Stamps, kept.Heads,
    kept.RetainedVersions, kept.Revocations, kept.Segment, kept.OpenSegment,
]  # fmt: skip
WHOLE = [
    kept.EpochFile, kept.Contact, kept.Shared, kept.ServedBy, kept.Brokers, kept.Hubs,
    kept.Moved, kept.HomeAssistant, kept.Subscriptions, kept.SpoolClaim,
]  # fmt: skip


def each_of(kinds):
    return pytest.mark.parametrize(
        "kept_file", kinds, indirect=True, ids=lambda kind: kind.__name__
    )


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch):
    """Nothing here is about a disk's own cache, and thousands of files wait for it in vain."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


class KeptFile:
    """A file of one kind, written once, and damaged again and again."""

    def __init__(self, kind, folder):
        self.kind, self._folder, self._cases = kind, folder / "sound", 0
        self._folder.mkdir()
        kind.write(self._folder)
        Inventory(self._folder).note_all()
        self.sound = kind.read(self.copy())

    def copy(self):
        self._cases += 1
        return shutil.copytree(self._folder, self._folder.parent / str(self._cases))

    def damaged(self, how):
        """What is left of the records when ``how`` changes the file: it is told and counted."""
        for told_before in (damage._found, damage._gone):
            told_before.clear()  # thousands take their time
        folder = self.copy()
        path = folder / self.kind.file
        changed = how(path.read_bytes())
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        with capture_logs() as logs:
            Inventory(folder).compare()
            left = self.kind.read(folder)
        told = [each for each in logs if each["event"] == "storage.damaged"]
        assert [each for each in told if each["path"] == str(path)], how
        assert damage.found(folder)[damage.kind_of(path)] >= 1
        self.folder = folder
        return left


@pytest.fixture
def kept_file(request, tmp_path):
    return KeptFile(request.param(), tmp_path)


def flipped(seed):
    def flip(content):
        rng = random.Random(seed)
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    return flip


def cut(seed):
    return lambda content: content[: random.Random(seed).randrange(1, len(content))]


def is_subsequence(some, all_):
    rest = iter(all_)
    return all(each in rest for each in some)


@each_of(RECORDS)
def test_one_flipped_bit_costs_at_most_one_record(kept_file):
    sound = kept_file.sound

    for seed in range(CASES):
        left = kept_file.damaged(flipped(seed))

        assert len(left) >= len(sound) - 1, seed
        assert is_subsequence(left, sound), seed
        assert kept_file.kind.read(kept_file.folder) == left, "as it stays"


@each_of(RECORDS)
def test_a_cut_tail_costs_what_it_held(kept_file):
    sound, elsewhere = kept_file.sound, kept_file.kind.elsewhere(kept_file.sound)
    held = [each for each in sound if each not in elsewhere]

    for seed in range(CASES):
        left = kept_file.damaged(cut(seed))

        assert is_subsequence(elsewhere, left), seed
        here = [each for each in left if each not in elsewhere]
        assert here == held[: len(here)], seed


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
@each_of([*RECORDS, *WHOLE])
def test_a_file_that_is_missing_or_empty_is_told(kept_file, content):
    left = kept_file.damaged(lambda _: content)

    assert left == kept_file.kind.elsewhere(kept_file.sound)


@pytest.mark.parametrize("how", [flipped, cut])
@each_of(WHOLE)
def test_a_damaged_whole_file_is_as_none(kept_file, how):
    for seed in range(CASES):
        assert kept_file.damaged(how(seed)) == [], seed


@each_of([kept.Token])
def test_a_flipped_bit_costs_no_agent_its_client_ids(kept_file):
    for seed in range(CASES):
        assert kept_file.damaged(flipped(seed)) == kept_file.sound, seed


@each_of([kept.Token])
def test_a_cut_tail_costs_an_agent_its_client_ids_when_neither_copy_is_whole(kept_file):
    [token] = kept_file.sound

    for seed in range(CASES):
        [left] = kept_file.damaged(cut(seed))

        content = (kept_file.folder / kept_file.kind.file).read_bytes()
        assert (left == token) == (token.encode() in content), seed


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
@each_of([kept.Token])
def test_an_agent_without_its_client_ids_draws_others(kept_file, content):
    assert kept_file.damaged(lambda _: content) != kept_file.sound


@pytest.mark.parametrize("how", [flipped, cut, lambda _: lambda _: b"", lambda _: lambda _: None])
@each_of([kept.Files])
def test_a_damaged_list_of_files_is_told_and_costs_nothing(kept_file, how):
    for seed in range(CASES):
        assert kept_file.damaged(how(seed)) == kept_file.sound, seed


@each_of([*RECORDS, *WHOLE, kept.Token])
def test_what_ends_without_damage_says_nothing_when_it_comes_again(kept_file):
    folder = kept_file.copy()

    with capture_logs() as logs:
        Inventory(folder).compare()
        left = kept_file.kind.read(folder)

    assert left == kept_file.sound != []
    assert not [each for each in logs if each["event"] == "storage.damaged"]
