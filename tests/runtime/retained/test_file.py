"""Versions of retained values across restarts. docs/protocol.md, section 13."""

import asyncio
import contextlib
import resource

import msgspec
from structlog.testing import capture_logs

from federator.protocol.retained.store import RetainedStore
from federator.protocol.retained.versions import Version
from federator.runtime.retained import file as retained_file
from federator.runtime.retained.file import FILE_NAME, RetainedFile
from tests.protocol.retained.peers import entries
from tests.real.polling import until


def empty():
    return RetainedStore(1, tombstone_keep_us=10**9)


def put(store, topic, time_us):
    store.put(topic, Version(time_us, 0, 2), 7, deleted=False, now_us=time_us)


def loaded(folder):
    store = empty()
    contact_s = RetainedFile(folder, store, contact_s=lambda: 0.0).load()
    return store, contact_s


@contextlib.asynccontextmanager
async def saving(folder, store, *, contact_s=123.5):
    file = RetainedFile(folder, store, contact_s=lambda: contact_s)
    task = asyncio.create_task(file.save_for_ever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def same(one, other):
    return known(one) == known(other)


def known(store):
    return {topic: entry._replace(touched=0) for topic, entry in entries(store)}


async def test_what_changed_is_on_disk_soon_so_that_a_killed_agent_has_it(tmp_path):
    store = empty()
    put(store, "before", 5)
    async with saving(tmp_path, store):
        await until(lambda: (tmp_path / FILE_NAME).exists(), "a first file")
        put(store, "a", 6)
        put(store, "b", 6)
        put(store, "a", 7)

        await until(lambda: same(loaded(tmp_path)[0], store), "the changes")  # as a kill leaves it


async def test_an_orderly_stop_leaves_everything_and_the_last_sign_of_life(tmp_path):
    store = empty()
    async with saving(tmp_path, store):
        await until(lambda: (tmp_path / FILE_NAME).exists(), "a first file")
        for number in range(3 * retained_file.APPENDED_AT_ONCE_MAX):
            put(store, f"t/{number}", 5)

    successor, contact_s = loaded(tmp_path)
    assert same(successor, store)
    assert contact_s == 123.5


async def test_a_file_that_outgrew_its_snapshot_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(retained_file, "APPENDIX_BYTES_MIN", 1_000)
    store = empty()
    async with saving(tmp_path, store):
        await until(lambda: (tmp_path / FILE_NAME).exists(), "a first file")
        for time_us in range(20):
            put(store, "always the same topic" * 5, time_us)
            await until(lambda: same(loaded(tmp_path)[0], store), "the change")
        await until(lambda: (tmp_path / FILE_NAME).stat().st_size < 1_000, "a shorter file")

        assert same(loaded(tmp_path)[0], store)


async def test_what_a_full_disk_took_half_of_does_not_spoil_what_follows(tmp_path):
    path = tmp_path / FILE_NAME
    store = empty()
    put(store, "before", 5)
    async with saving(tmp_path, store):
        await until(lambda: same(loaded(tmp_path)[0], store), "a first file")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        with capture_logs() as logs:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
            try:
                put(store, "too long" * 20, 6)
                await until(lambda: [e for e in logs if e["event"] == "retained.not_saved"], "why")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        put(store, "after", 7)

        await until(lambda: "after" in known(loaded(tmp_path)[0]), "what follows")


def test_versions_that_an_older_release_wrote_are_known(tmp_path):
    store = empty()
    put(store, "a", 5)
    put(store, "b", 6)
    part = msgspec.msgpack.encode(store.save()())
    (tmp_path / FILE_NAME).write_bytes(len(part).to_bytes(4, "big") + part)

    assert same(loaded(tmp_path)[0], store)


def test_without_a_file_or_with_a_damaged_one_an_agent_starts_with_nothing(tmp_path):
    assert loaded(tmp_path)[1] == 0.0
    (tmp_path / FILE_NAME).write_bytes(b"\0\0\0\3abc")

    store, contact_s = loaded(tmp_path)

    assert len(store) == contact_s == 0
