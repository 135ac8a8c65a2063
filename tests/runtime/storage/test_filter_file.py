import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import ConfigError
from federator.runtime.storage import damage
from federator.runtime.storage.filter_file import OWED, FilterFile
from federator.runtime.storage.inventory import Inventory
from tests.runtime.custody.custody_world import reopening

FILTERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
UNTIL = st.integers(0, 2**62)

opened = reopening(lambda folder, **how: FilterFile(folder, OWED, **how))


@settings(max_examples=200)
@given(st.lists(st.tuples(FILTERS | st.sampled_from("abc"), UNTIL | st.none())))
def test_the_list_is_what_a_dictionary_is_also_after_a_restart(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("owed")
    owed, model = FilterFile(folder, OWED), {}

    for filter_, until_us in changes:
        assert owed.alter({filter_: until_us})
        if until_us is None:
            model.pop(filter_, None)
        else:
            model[filter_] = until_us

    assert owed.load() == model
    owed.close()
    owed = FilterFile(folder, OWED)
    assert owed.load() == model
    assert not damage.found(folder)
    owed.close()


def test_a_file_of_old_changes_is_written_anew(tmp_path, opened):
    owed = opened()

    for number in range(5_000):
        owed.alter({"a/b": number})
        assert (tmp_path / OWED).stat().st_size < 32_000
    owed.alter({"c": 1})

    owed = opened()
    assert owed.load() == {"a/b": 4_999, "c": 1}


def test_more_filters_than_there_is_room_for_are_turned_away(opened):
    owed = opened(filters_max=2)

    assert [owed.alter({filter_: 0}) for filter_ in "abc"] == [True, True, False]
    assert owed.alter({"a": 7})
    owed.alter({"b": None})
    assert owed.alter({"c": 0})

    owed = opened(filters_max=1)
    assert len(owed.load()) == 1


def test_what_goes_makes_room_for_what_comes_in_the_same_write(opened):
    owed = opened(filters_max=2)
    owed.alter(dict.fromkeys("ab", 0))

    assert not owed.alter({"c": 1, "d": 2, "a": None, "b": 3})

    assert owed.load() == {"b": 3, "c": 1}
    owed = opened(filters_max=2)
    assert owed.load() == {"b": 3, "c": 1}


def test_a_list_that_is_missing_is_not_taken_for_none(tmp_path, opened):
    first = opened()
    assert first.is_new
    first.close()
    Inventory(tmp_path).note_names()
    (tmp_path / OWED).unlink()
    Inventory(tmp_path).compare()

    again = opened()

    assert not again.is_new, "or the broker would be told to forget what waits for us"
    again.close()


def test_damaged_lines_of_a_list_of_an_older_release_cost_no_other(tmp_path, opened):
    path = tmp_path / OWED
    path.write_bytes(b'["a",0]\n["b",\n{}\n\xff\xfe\n[1,2]\n\n["c",5]\n')

    for _ in range(2):
        owed = opened()

        assert owed.load() == {"a": 0, "c": 5}
        assert damage.found(tmp_path) == {OWED: 4}


def test_a_folder_that_cannot_be_used_is_named_and_the_file_is_for_us_alone(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=str(tmp_path / "file")):
        FilterFile(tmp_path / "file", OWED)

    owed = FilterFile(tmp_path / "folder", OWED)

    assert (tmp_path / "folder" / OWED).stat().st_mode & 0o777 == 0o600
    owed.close()
