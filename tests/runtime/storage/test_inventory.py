"""What a state folder lacks is told, and nothing that was taken away on purpose."""

import pytest

from federator.runtime.storage import damage
from federator.runtime.storage.inventory import FILE_NAME, Inventory
from federator.runtime.storage.state_dir import StateDir


def begin_again(folder):
    """As the next process does."""
    with StateDir(folder):
        return damage.found(folder)


@pytest.mark.parametrize("name", ["draining", "former-session", "move", "lock"])
def test_a_file_that_its_process_left_is_missed(tmp_path, name):
    with StateDir(tmp_path):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / name).unlink()

    assert begin_again(tmp_path) == ({} if name == "lock" else {name: 1})


@pytest.mark.parametrize("folder", [".", "leaves/7"])
@pytest.mark.parametrize("name", ["draining", "former-session", "home-assistant.json"])
def test_what_is_there_at_times_is_not_missed_when_a_process_is_killed(tmp_path, folder, name):
    path = tmp_path / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    Inventory(tmp_path).note_names()
    path.unlink()

    assert begin_again(tmp_path) == {}


def test_the_list_of_files_is_missed_where_one_was_written(tmp_path):
    with StateDir(tmp_path) as state:
        state.next_epoch()
    (tmp_path / FILE_NAME).unlink()

    assert begin_again(tmp_path) == {FILE_NAME: 1}


def test_a_folder_of_an_older_release_lacks_nothing(tmp_path):
    (tmp_path / "epoch").write_text("1764408496123\n")

    assert begin_again(tmp_path) == {}
    assert StateDir(tmp_path).next_epoch() > 1764408496123
