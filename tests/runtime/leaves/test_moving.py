"""A move is remembered in a file of the state folder, which may be lost."""

import pytest

from federator.errors import ConfigError
from federator.runtime.leaves.moving import FILE, begin, forget
from federator.runtime.storage import damage
from federator.runtime.storage.inventory import Inventory
from federator.runtime.storage.state_dir import StateDir


def test_a_move_whose_file_is_missing_begins_again(tmp_path):
    with StateDir(tmp_path) as state:
        begin(tmp_path)
        state.next_epoch()
    (tmp_path / FILE).unlink()

    with StateDir(tmp_path):
        begin(tmp_path)

    assert (tmp_path / FILE).exists()
    assert damage.found(tmp_path) == {FILE: 1}


def test_no_move_begins_where_an_agent_was_before(tmp_path):
    with StateDir(tmp_path) as state:
        state.next_epoch()

    with StateDir(tmp_path), pytest.raises(ConfigError, match="name a new folder"):
        begin(tmp_path)


def test_the_file_of_a_move_that_is_over_is_not_missed(tmp_path):
    with StateDir(tmp_path):
        begin(tmp_path)
    with StateDir(tmp_path) as state:
        forget(state)

        Inventory(tmp_path).compare()  # as if this process were killed now

    assert not damage.found(tmp_path)
