"""SIGHUP, signals in plenty, files that cannot be used: what a daemon follows, and what it says."""

import asyncio
import contextlib
import os
import signal

import pytest
import structlog.testing

from federator.config.reload import differences, reloaded
from federator.config.settings import Settings
from federator.config.validation import validated
from federator.errors import ConfigError
from federator.runtime.process import reloading
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from tests.real.polling import until

STORM = 100


def settings(**sections):
    broker = {"id": 1, "url": "mqtt://127.0.0.1"}
    return validated(Settings, {"security": "open", "broker": broker} | sections)


class File:
    """A configuration that is read, and what becomes of it."""

    def __init__(self):
        self.content = settings()
        self.reads = 0
        self.levels = []
        self.followed = []
        self.spans = []

    def read(self):
        self.reads += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def follow(self, settings, prepared):
        self.followed.append((settings, prepared))

    @contextlib.contextmanager
    def telling(self):
        self.spans.append("reloading")
        yield
        self.spans.append("ready")


@pytest.fixture
def file():
    return File()


@contextlib.asynccontextmanager
async def following(file, prepare=lambda new: new.links.cost):
    asked = reload_requested()
    source = Source(file.read, reloaded, file.levels.append)
    made = Reloader(settings(), source, asked, prepare=prepare, follow=file.follow)
    try:
        async with made.following(file.telling):
            yield made
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


async def reload(file):
    """Send the signal; what was logged until the reading was over."""
    spans = len(file.spans)
    with structlog.testing.capture_logs() as logged:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(file.spans) == spans + 2, "it is read")
    return [line for line in logged if line["event"].startswith("config.")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(reloading, "GAP_S", 0.0)


async def test_a_signal_has_the_file_read_and_followed_and_says_what_changed(file):
    async with following(file) as made:
        file.content = settings(links={"cost": "delay"}, log={"level": "debug"})
        (line,) = await reload(file)

    assert line["changed"] == ["links.cost: hops -> delay", "log.level: info -> debug"]
    assert (file.followed, file.levels) == ([(file.content, "delay")], ["debug"])
    assert (made.settings, file.spans) == (file.content, ["reloading", "ready"])


async def test_what_takes_a_restart_is_told_until_it_is_taken_back(file):
    async with following(file) as made:
        file.content = settings(mesh={"redundancy": 3})
        (line,) = await reload(file)
        waits = made.snapshot()["restart_wanted"]
        file.content = settings()
        (again,) = await reload(file)

    assert (line["event"], line["log_level"]) == ("config.restart_wanted", "warning")
    assert line["keys"] == waits == ["mesh.redundancy: 2 -> 3"]
    assert (again["event"], again["changed"]) == ("config.reloaded", [])
    assert made.snapshot()["restart_wanted"] == []


@pytest.mark.parametrize(
    "error", [ConfigError("f.toml:3: x: mend it", exit_code=78), FileNotFoundError("gone")]
)
async def test_a_file_that_cannot_be_used_changes_nothing(file, error):
    async with following(file) as made:
        before, file.content = made.settings, error
        (line,) = await reload(file)
        refused = made.snapshot()["refused"]
        file.content = settings()
        await reload(file)

    assert (line["event"], line["reason"], refused) == ("config.refused", str(error), str(error))
    assert made.snapshot()["refused"] is None
    assert (file.levels, made.settings) == (["info"], before)
    assert file.spans == ["reloading", "ready"] * 2


async def test_what_cannot_be_prepared_changes_nothing(file):
    def prepare(new):
        raise OSError(2, "No such file", "client.pem")

    file.content = settings(log={"level": "debug"})
    async with following(file, prepare) as made:
        (line,) = await reload(file)

    assert "client.pem" in line["reason"]
    assert (made.settings, file.levels) == (settings(), [])


async def test_a_storm_of_signals_has_few_readings_and_the_last_counts(file, monkeypatch):
    monkeypatch.setattr(reloading, "GAP_S", 0.05)
    async with following(file) as made:
        for number in range(STORM):
            file.content = settings(log={"level": "debug" if number % 2 else "error"})
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.001)
        file.content = settings(log={"level": "warning"})
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: made.settings.log.level == "warning", "the last is followed")

    assert made.readings == file.reads < STORM / 2


def test_keys_in_plenty_are_told_in_short():
    neighbours = [{"url": f"mqtt://b{number}"} for number in range(500)]

    told = reloading._as_text(list(differences(settings(), settings(neighbours=neighbours))))

    assert len(told) == reloading.TOLD_MAX + 1
    assert told[-1] == "and 468 more"
