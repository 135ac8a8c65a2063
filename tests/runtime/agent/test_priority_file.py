import asyncio
import json
import time

import pytest
import structlog.testing

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.events import PriorityChanged
from federator.runtime.agent.priority_file import FILE_NAME, PriorityFile, follow_placement
from tests.real.polling import until


def in_ms(ms):
    return time.time_ns() // 1_000_000 + ms


def write(folder, **content):
    (folder / FILE_NAME).write_text(json.dumps(content))


def test_a_valid_word_is_read_and_nothing_is_said_where_there_is_none(tmp_path):
    file = PriorityFile(tmp_path)
    assert file.read() is None

    write(tmp_path, priority=-3, valid_until_ms=in_ms(60_000))

    assert file.read() == -3


def test_a_word_that_is_over_is_no_word(tmp_path):
    write(tmp_path, priority=-3, valid_until_ms=in_ms(-1))

    assert PriorityFile(tmp_path).read() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"priority": "1", "valid_until_ms": 1}',
        b'{"priority": 99999999999, "valid_until_ms": 1}',
        b'{"priority": 1}',
        b'{"priority": 1, "valid_until_ms": 1, "more": 1}',
        b" " * 5_000,
        b'{"priority": 1, "valid_until_ms": 9999999999999}',
    ],
)
def test_an_unusable_file_is_told_once_and_followed_never(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    file = PriorityFile(tmp_path)

    with structlog.testing.capture_logs() as logs:
        assert [file.read() for _ in range(5)] == [None] * 5

    assert [entry["event"] for entry in logs] == ["core.priority_file_unusable"]


async def test_a_plan_goes_before_the_file_and_each_before_the_configuration(tmp_path):
    settings = validated(
        Settings,
        {
            "broker": {"id": 1, "url": "mqtt://127.0.0.1", "priority": 5},
            "mesh": {"core": "placed", "core_check_ms": 1, "core_hold_ms": 0},
        },
    )
    write(tmp_path, priority=-3, valid_until_ms=in_ms(60_000))
    planned, changes = [-7], []
    task = asyncio.create_task(
        follow_placement(
            settings, tmp_path, planned=lambda: planned[0], changed=lambda c: changes.append(c)
        )
    )
    try:
        for last in (-7, -3, 5):
            await until(lambda now=last: changes[-1:] == [PriorityChanged(now)], f"{last} holds")
            if last == -3:
                (tmp_path / FILE_NAME).unlink()
            planned[0] = None
    finally:
        task.cancel()
    assert [change.priority for change in changes] == [-7, -3, 5]
