"""Every kind of file in a state folder: how some records of it are written, and read again."""

import asyncio

import msgspec

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol import discovery
from federator.protocol.custody.ports import KnownStamp
from federator.protocol.messages.serving import Served
from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from federator.protocol.telemetry.records import Events, decode
from federator.runtime.agent import home_assistant
from federator.runtime.custody.chains import HeadsFile
from federator.runtime.custody.delivery_journal import DeliveryJournal
from federator.runtime.custody.log import CustodyLog
from federator.runtime.custody.stamp_file import StampFile
from federator.runtime.discovery import service
from federator.runtime.leaves import hub_finder, moving
from federator.runtime.leaves.serving import ServedFile
from federator.runtime.retained.file import CONTACT_NAME, RetainedFile
from federator.runtime.sharing.file import ShareFile
from federator.runtime.storage import damage, inventory
from federator.runtime.storage.filter_file import FilterFile
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.telemetry.spool import Spool
from federator.runtime.telemetry.spool_files import Claim, Numbering
from federator.runtime.topology.arranging import Arranger, known_brokers
from federator.runtime.trust.guarding import _stored_lists
from tests.protocol.retained.peers import entries
from tests.runtime.custody.custody_world import BOOT, add, key

FUTURE_MS = 1 << 43
SPOOL = "0123456789abcdef"
HUBS = [{"url": f"mqtt://h{id}", "id": id} for id in (3, 7, 12)]


class Kind:
    """Writes some records, and reads what is left of them."""

    file = ""

    def write(self, folder):
        raise NotImplementedError

    def read(self, folder):
        """The records, in the order in which they are written."""
        raise NotImplementedError

    def elsewhere(self, sound):
        """Which of ``sound`` another file holds."""
        return []


class Log(Kind):
    file = f"log/7-{1:020}.log"
    body_bytes = 4
    segment_bytes = 1 << 20

    def _open(self, folder):
        now = {"wall_clock_us": lambda: 7_000, "boot": BOOT}
        how = {"age_max_s": 1e9, "segment_bytes": self.segment_bytes}
        return CustodyLog(folder / "log", bytes_max=1 << 20, **now, **how)

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


class Page(Log):
    """The middle one of three segments."""

    file = f"log/7-{8:020}.log"
    segment_bytes = 440

    def elsewhere(self, sound):
        return [seq for seq in sound if not 8 <= seq < 15]


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
            owed.alter({f"a/{number}": number})
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


class Segment(Kind):
    """Of the metrics stream, whole."""

    file = f"metrics/3-{SPOOL}-1-10.jsonl"

    def _open(self, folder):
        damage.write(folder / "metrics" / "spool", msgspec.json.encode(Claim(SPOOL, "", 0, 0)))
        how = {"bytes_max": 10**9, "segment_bytes_max": 10**8, "segment_age_ms": 1_000}
        return Spool(folder=folder / "metrics", broker=3, **how)

    def write(self, folder):
        (folder / "metrics").mkdir()
        spool = self._open(folder)
        shared = {"federation": "f", "epoch": 1}
        for at_us in range(0, 20, 2):
            details = ({"at_us": us, "kind": "link_up", "detail": ""} for us in (at_us, at_us + 1))
            spool.write([(Events, each) for each in details], shared, now_ms=0)
        self._end(spool)

    def _end(self, spool):
        spool.close()

    def read(self, folder):
        part = self._open(folder).read(SPOOL, 1, 99, bytes_max=1 << 20)
        return [] if part is None else [decode(line).at_us for line in part.lines.splitlines()]


class OpenSegment(Segment):
    """As a process leaves it that was killed."""

    file = f"metrics/.3-{SPOOL}-1.open"

    def _end(self, spool):
        pass


class Token(Kind):
    file = "client-token"

    def write(self, folder):
        StateDir(folder).client_token()

    def read(self, folder):
        return [StateDir(folder).client_token()]


class Whole(Kind):
    """One record."""

    content = b""

    def write(self, folder):
        damage.write(folder / self.file, self.content)


class EpochFile(Whole):
    file = "epoch"
    content = b"%d" % FUTURE_MS

    def read(self, folder):
        found = StateDir(folder).next_epoch() - 1
        now_ms = 1 << 42  # in the year 2109
        return [found] if found > now_ms else []


class Contact(Whole):
    file = CONTACT_NAME
    content = b"%f" % 1_764_408_496.123

    def read(self, folder):
        (folder / "retained.log").write_bytes(damage.lines([b"[]"]))
        store = RetainedStore(1, tombstone_keep_us=10**9)
        found = RetainedFile(folder, store, contact_s=lambda: 0.0).load()
        return [found] if found else []


class Shared(Whole):
    file = "shared_groups.json"
    content = msgspec.json.encode([("g", "a/b"), ("h", "c")])

    def read(self, folder):
        found = ShareFile(folder).load()
        return [found] if found else []


class ServedBy(Whole):
    file = "served"

    def write(self, folder):
        ServedFile(folder).write(Served(7, 123_456))

    def read(self, folder):
        found, _ = ServedFile(folder).read()
        return [found] if found else []


class Brokers(Whole):
    file = "brokers.json"

    def write(self, folder):
        Arranger(folder, measured=None).remember(((3, "mqtt://b3"), (7, "mqtts://b7")))

    def read(self, folder):
        found = known_brokers(folder)
        return [found] if found else []


def _settings(**more):
    told = {"security": "open", "broker": {"id": 1, "url": "mqtt://h", "name": "one"}}
    return validated(Settings, told | more)


class Hubs(Whole):
    file = hub_finder.FILE
    content = b"[3,7]"
    settings = _settings(role="leaf", neighbours=HUBS, topology={"mode": "auto"})

    def read(self, folder):
        finder = hub_finder.HubFinder(self.settings, folder)
        return [] if finder._is_new else [finder._near.taken]


class Moved(Whole):
    file = moving.FILE
    content = moving.HANDED_OVER.encode()
    settings = _settings()

    def read(self, folder):
        found = moving.Move(self.settings, folder, None).phase
        return [] if found == moving.BEGUN else [found]


class HomeAssistant(Whole):
    file = "home-assistant.json"
    content = msgspec.json.encode(("homeassistant/device/a/config", "fed/a/available"))
    settings = _settings()

    def read(self, folder):
        teller = home_assistant.HomeAssistantTeller(self.settings, folder, link=None, links=None)
        return [teller._on_broker] if teller.needed else []


async def _called(function):
    function()


class Subscriptions(Whole):
    file = service.FILE_NAME

    def _discovery(self, folder):
        told = {"federation": "fed", "own_id": "federator-1", "state_dir": folder}
        return service.Discovery(_settings().discovery, **told, interest_changed=lambda *_: None)

    def write(self, folder):
        record = msgspec.structs.replace(
            self._discovery(folder).record(), registered=[("a/b", 10**9)]
        )
        content = service.SavedDiscovery(False, 1, discovery.encode_record(record))
        damage.write(folder / self.file, msgspec.msgpack.encode(content))

    def read(self, folder):
        found = self._discovery(folder)
        asyncio.run(_called(found._load))
        return [filter for filter in found.known.wanted if filter == "a/b"]


class SpoolClaim(Whole):
    file = "spool"

    def write(self, folder):
        damage.write(folder / self.file, msgspec.json.encode(Claim(SPOOL, "", 1, 9)))

    def read(self, folder):
        found = Numbering.open(folder / self.file, {}, end_lost=False)
        return [found.spool] if found.next_batch > 1 else []


class Files(Whole):
    """Which files there are."""

    file = inventory.FILE_NAME

    def write(self, folder):
        StateDir(folder).next_epoch()
        (folder / "owed").write_bytes(b"more")
        inventory.Inventory(folder).note_all()

    def read(self, folder):
        with StateDir(folder):
            return [(folder / "owed").read_bytes()]
