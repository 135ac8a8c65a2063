"""What was published here is known again after a restart, as far back as there is room."""

import struct

import pytest

from federator.protocol.custody.ports import KnownStamp
from federator.runtime.custody.stamp_file import NAME, StampFile
from federator.runtime.storage import damage


def stamps(*digests):
    return [KnownStamp(digest, by_leaf=digest % 2 == 0) for digest in digests]


def test_a_new_life_knows_what_the_last_one_wrote(tmp_path):
    file = StampFile(tmp_path)
    assert file.load() == []
    file.append(stamps(1, 2**64 - 2))
    file.append([])
    file.append(stamps(3))
    file.close()

    again = StampFile(tmp_path)

    assert again.load() == stamps(1, 2**64 - 2, 3)
    again.append(stamps(4))
    again.close()
    assert StampFile(tmp_path).load() == stamps(1, 2**64 - 2, 3, 4)


def test_the_newest_are_kept_and_the_file_stays_short(tmp_path):
    file = StampFile(tmp_path, saved_max=10)
    file.load()
    for digest in range(100):
        file.append(stamps(digest))
    size = (tmp_path / NAME).stat().st_size
    file.close()

    assert StampFile(tmp_path, saved_max=10).load() == stamps(*range(90, 100))
    assert size <= 20 * 17


def test_stamps_of_an_older_release_are_known(tmp_path):
    (tmp_path / NAME).write_bytes(b"".join(struct.pack(">Q?", *each) for each in stamps(1, 2)))
    file = StampFile(tmp_path)
    assert file.load() == stamps(1, 2)
    file.append(stamps(3))
    file.close()

    assert StampFile(tmp_path).load() == stamps(1, 2, 3)
    assert not damage.found(tmp_path)


@pytest.mark.parametrize("size", range(1, 34))
def test_what_a_cut_leaves_is_no_stamp_of_an_older_release(tmp_path, size):
    file = StampFile(tmp_path)
    file.append(stamps(1, 2))
    file.close()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:size])

    again = StampFile(tmp_path)
    assert again.load() == stamps(*[1][: size // 17])
    assert bool(damage.found(tmp_path)) == (size != 17)
    again.append(stamps(3))
    again.close()

    assert StampFile(tmp_path).load() == stamps(*[1][: size // 17], 3)


def test_nothing_is_written_where_there_is_nothing_to_know(tmp_path):
    file = StampFile(tmp_path)
    file.load()
    file.append([])
    file.close()

    assert not (tmp_path / NAME).exists()


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / NAME).mkdir()

    with pytest.raises(OSError, match="directory"):
        StampFile(tmp_path).load()
