"""What custody keeps on disk: whom we owe what."""

from federator.config.sections import CustodySettings
from federator.runtime.custody.stores import CustodyStores


def test_what_a_turn_alters_of_what_is_owed_is_one_write_and_there_for_the_next_process(tmp_path):
    stores = CustodyStores(tmp_path, CustodySettings())
    stores.write_owed("a", 0)
    stores.write_owed("b", 7)
    stores.write_owed("a", None)
    assert stores.load_owed() == {}

    stores.flush_owed()

    assert stores.load_owed() == {"b": 7}
    stores.write_owed("c", 9)
    stores.close()
    again = CustodyStores(tmp_path, CustodySettings())
    assert again.load_owed() == {"b": 7, "c": 9}
    again.close()
