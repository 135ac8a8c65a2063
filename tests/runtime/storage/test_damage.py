"""Every kind of kept file, damaged at random: what is sound is read, and the rest is told."""

import asyncio
import os
import random

import msgspec
import pytest
from structlog.testing import capture_logs

from federator.protocol.data.ports import KnownStamp
from federator.protocol.messages.serving import Served
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from federator.runtime.agent.serving import ServedFile
from federator.runtime.custody.chains import HeadsFile
from federator.runtime.custody.delivery_journal import DeliveryJournal
from federator.runtime.custody.log import CustodyLog
from federator.runtime.custody.stamp_file import StampFile
from federator.runtime.retained.file import RetainedFile
from federator.runtime.sharing.file import ShareFile
from federator.runtime.storage import damage
from federator.runtime.storage.filter_file import FilterFile
from federator.runtime.storage.inventory import Inventory
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.telemetry.spool_files import Claim, Numbering
from federator.runtime.topology.arranging import Arranger, known_brokers
from federator.runtime.trust.guarding import _stored_lists
from tests.protocol.retained.peers import entries
from tests.runtime.custody.custody_world import BOOT, T0_US, add, key

CASES = 100


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch):
    """Nothing here is about a disk's own cache, and thousands of files wait for it in vain."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


class Kind:
    """A kind of file: writes some records, and reads what is left of them."""

    file = ""

    def write(self, folder):
        raise NotImplementedError

    def read(self, folder):
        """The records, in the order in which they are written."""
        raise NotImplementedError


class Log(Kind):
    file = f"log/7-{1:020}.log"

    def _open(self, folder):
        now = {"wall_clock_us": lambda: T0_US, "boot": BOOT, "epoch_min": 7}
        now["wall_clock_us"] = lambda: 7_000
        return CustodyLog(folder / "log", bytes_max=1 << 20, age_max_s=1e9, **now)

    def write(self, folder):
        log = self._open(folder)
        for number in range(20):
            add(log, {number % 3}, time_us=7_000)
        log.close()

    def read(self, folder):
        log = self._open(folder)
        found = [record.seq for record in log.recent(99)][::-1]
        log.close()
        return found


class Journal(Kind):
    file = "deliveries"

    def write(self, folder):
        journal = DeliveryJournal(folder, boot=BOOT)
        journal.snapshot({(1, key(n)): (1, n) for n in range(5)}, {}, folded_to=0)
        for number in range(5, 20):
            journal.append([(1, 1, number, key(number))])
        journal.close()

    def read(self, folder):
        journal = DeliveryJournal(folder, boot=BOOT)
        found = [seq for _, seq in journal.positions(None).values()]
        journal.close()
        return found


class Filters(Kind):
    file = "owed"

    def write(self, folder):
        owed = FilterFile(folder, "owed")
        for number in range(20):
            owed.note(f"a/{number}", number)
        owed.close()

    def read(self, folder):
        owed = FilterFile(folder, "owed")
        owed.close()
        return list(owed.load().items())


class Stamps(Kind):
    file = "stamps"

    def write(self, folder):
        stamps = StampFile(folder)
        stamps.append([KnownStamp(number << 40, True) for number in range(20)])
        stamps.close()

    def read(self, folder):
        return StampFile(folder).load()


class Heads(Kind):
    file = "heads"

    def write(self, folder):
        idle = {key(number): number for number in range(20)}
        heads = HeadsFile(folder, idle)
        heads.load(7)
        heads.append(idle)
        heads.close()

    def read(self, folder):
        return list(HeadsFile(folder, {}).load(7).items())


class RetainedVersions(Kind):
    file = "retained.log"

    def write(self, folder):
        store = RetainedStore(1, tombstone_keep_us=10**9)

        async def save():
            file = RetainedFile(folder, store, contact_s=lambda: 0.0)
            saving = asyncio.create_task(file.save_for_ever())
            await asyncio.sleep(0)
            for number in range(20):
                store.put(f"a/{number:02}", Version(5, 0, 2), 7, deleted=False, now_us=5)
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)

        asyncio.run(save())

    def read(self, folder):
        store = RetainedStore(1, tombstone_keep_us=10**9)
        RetainedFile(folder, store, contact_s=lambda: 0.0).load()
        return [topic for topic, _ in entries(store)]


class Revocations(Kind):
    file = "revocations"

    def write(self, folder):
        lists = [b"%d" % number * 20 for number in range(20)]
        (folder / self.file).write_bytes(b"".join(map(damage.piece, lists)))

    def read(self, folder):
        path = folder / self.file
        return _stored_lists(path) if path.exists() else []


class Token(Kind):
    file = "client-token"

    def write(self, folder):
        StateDir(folder).client_token()

    def read(self, folder):
        return [StateDir(folder).client_token()]


class Shared(Kind):
    file = "shared_groups.json"

    def write(self, folder):
        damage.write(folder / self.file, msgspec.json.encode([("g", "a/b"), ("h", "c")]))

    def read(self, folder):
        found = ShareFile(folder).load()
        return [found] if found else []


class Hubs(Kind):
    file = "served"

    def write(self, folder):
        ServedFile(folder).write(Served(7, 123_456))

    def read(self, folder):
        found, _ = ServedFile(folder).read()
        return [found] if found else []


class Brokers(Kind):
    file = "brokers.json"

    def write(self, folder):
        Arranger(folder, measured=None).remember(((3, "mqtt://b3"), (7, "mqtts://b7")))

    def read(self, folder):
        found = known_brokers(folder)
        return [found] if found else []


class Spool(Kind):
    file = "spool"

    def write(self, folder):
        damage.write(folder / self.file, msgspec.json.encode(Claim("0" * 16, "", 1, 9)))

    def read(self, folder):
        found = Numbering.open(folder / self.file, {})
        return [found.spool] if found.next_batch > 1 else []


KINDS = [Log, Journal, Filters, Stamps, Heads, RetainedVersions, Revocations]
WHOLE = [Shared, Hubs, Brokers, Spool]


def damaged(folder, kind, how):
    """What is left of the records when ``how`` changes the file, and what was told of it."""
    Inventory(folder).note_all()
    path = folder / kind.file
    changed = how(path.read_bytes())
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    with capture_logs() as logs:
        Inventory(folder).compare()
        left = kind.read(folder)
    told = [each for each in logs if each["event"] == "storage.damaged"]
    assert told, how
    assert damage.found(folder)[damage.kind_of(path)] >= 1
    return left


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


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


def test_one_flipped_bit_costs_at_most_one_record(tmp_path_factory, kind):
    for seed in range(CASES):
        folder = tmp_path_factory.mktemp("kept")
        kind.write(folder)
        sound = kind.read(folder)

        left = damaged(folder, kind, flipped(seed))

        assert len(left) >= len(sound) - 1, seed
        assert is_subsequence(left, sound), seed
        assert kind.read(folder) == left, "as it stays"


def test_a_cut_tail_costs_what_it_held(tmp_path_factory, kind):
    for seed in range(CASES):
        folder = tmp_path_factory.mktemp("kept")
        kind.write(folder)
        sound = kind.read(folder)

        left = damaged(folder, kind, cut(seed))

        assert left == sound[: len(left)], seed


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
@pytest.mark.parametrize("kind", [*KINDS, *WHOLE, Token], ids=lambda kind: kind.__name__)
def test_a_file_that_is_missing_or_empty_is_told(tmp_path, kind, content):
    kind = kind()
    kind.write(tmp_path)
    sound = kind.read(tmp_path)

    left = damaged(tmp_path, kind, lambda _: content)

    assert not [each for each in left if each in sound]


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_a_damaged_whole_file_is_as_none(tmp_path_factory, kind):
    for seed in range(CASES):
        folder = tmp_path_factory.mktemp("kept")
        kind().write(folder)

        assert damaged(folder, kind(), flipped(seed)) == [], seed


def test_a_flipped_bit_costs_no_agent_its_client_ids(tmp_path_factory):
    for seed in range(CASES):
        folder = tmp_path_factory.mktemp("kept")
        Token().write(folder)
        sound = Token().read(folder)

        assert damaged(folder, Token(), flipped(seed)) == sound, seed


def test_what_ends_without_damage_says_nothing_when_it_comes_again(tmp_path):
    for kind in [*KINDS, *WHOLE]:
        kind().write(tmp_path)
    Inventory(tmp_path).note_all()

    with capture_logs() as logs:
        Inventory(tmp_path).compare()
        assert all(kind().read(tmp_path) for kind in [*KINDS, *WHOLE])

    assert logs == []
