import json
import time

import pytest
import structlog.testing

from federator.runtime.agent.priority_file import FILE_NAME, PriorityFile


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
