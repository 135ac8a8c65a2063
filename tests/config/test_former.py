"""``former``: what a broker was before its role changed."""

import pytest

from federator.config.reading import load
from federator.errors import ConfigError
from tests.config.conftest import GOOD

LEAF = """\
role = "leaf"
federation = "fed"
security = "open"
state_dir = "leaf-state"
[broker]
id = 1
url = "mqtt://127.0.0.1:1883"
[[neighbours]]
id = 7
url = "mqtt://127.0.0.1:2883"
"""
TOP = 'former = "leaf.toml"\nsecurity = "open"\nstate_dir = "state"\n'

SPOILT = {
    "of another broker": (("id = 1", "id = 2"), "it is of broker 2, and this is 1: a broker keeps"),
    "at another address": (("0.1:1883", "0.1:1884"), "it is of mqtt://127.0.0.1:1884: name the"),
    "of the same role": (('role = "leaf"', ""), "it is of the federation fed, too: remove former"),
    "in the same folder": (
        ("leaf-state", "state"),
        "state, too: give this one a folder",
    ),
    "that chooses": (("[broker]", '[topology]\nmode = "auto"\n[broker]'), "it chooses among hubs"),
    "with a former one": (("[broker]", 'former = "x"\n[broker]'), "it names a former one itself"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_former_one_that_cannot_be_is_refused(tmp_path, how):
    (old, new), wanted = SPOILT[how]
    (tmp_path / "leaf.toml").write_text(LEAF.replace(old, new))
    path = tmp_path / "federator.toml"
    path.write_text(TOP + GOOD)

    with pytest.raises(ConfigError) as refusal:
        load(path, {})

    assert str(refusal.value).startswith(f"{path}:1: former: {tmp_path / 'leaf.toml'}: ")
    assert wanted in str(refusal.value)


def test_leaves_are_taken_when_the_move_is_over(tmp_path):
    (tmp_path / "leaf.toml").write_text(LEAF)
    path = tmp_path / "federator.toml"
    path.write_text(TOP + GOOD + "[[leaves]]\nid = 9\n")
    with pytest.raises(ConfigError, match=r"there are \[\[leaves\]\]: a broker that moves"):
        load(path, {})


def test_a_former_one_that_is_wrong_itself_is_named(tmp_path):
    path = tmp_path / "federator.toml"
    path.write_text(TOP + GOOD)
    with pytest.raises(ConfigError, match=r"leaf\.toml: no such file"):
        load(path, {})
    (tmp_path / "leaf.toml").write_text(LEAF.replace("id = 1\n", "idd = 1\n"))
    with pytest.raises(ConfigError, match=r"leaf\.toml:6: unknown key 'broker\.idd'"):
        load(path, {})


def test_a_former_leaf_beside_a_member_is_taken(tmp_path):
    (tmp_path / "leaf.toml").write_text(LEAF)
    path = tmp_path / "federator.toml"
    path.write_text(TOP + GOOD)
    assert load(path, {}).former == tmp_path / "leaf.toml"
