import json

import pytest

from federator.runtime.sharing.file import FILE_NAME, SAVE_AFTER_S, ShareFile
from tests.real.polling import until

GROUPS = [("g", "jobs/#"), ("h", "a/+/b")]


async def test_groups_are_known_after_a_restart(tmp_path):
    file = ShareFile(tmp_path)
    assert file.load() == []

    file.save(GROUPS)
    await until(lambda: (tmp_path / FILE_NAME).exists(), "the list")

    assert ShareFile(tmp_path).load() == GROUPS


async def test_the_last_of_many_changes_is_written_and_no_change_is_not(tmp_path, monkeypatch):
    file = ShareFile(tmp_path)
    for number in range(10):
        file.save([("g", str(number))])
    await until(lambda: (tmp_path / FILE_NAME).exists(), "the list")
    (tmp_path / FILE_NAME).unlink()

    file.save([("g", "9")])

    assert file._timer is None, f"nothing is due in {SAVE_AFTER_S} s"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[[1, 2]]", b'[["g"]]', b'[["g", "$SYS/#"]]', b'[["g+", "a"]]'],
)
def test_a_damaged_list_is_no_list(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)

    assert ShareFile(tmp_path).load() == []


async def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path):
    file = ShareFile(tmp_path / "missing")
    file.save(GROUPS)

    await until(lambda: file._timer is None, "it was tried")

    assert json.dumps(file.load()) == "[]"
