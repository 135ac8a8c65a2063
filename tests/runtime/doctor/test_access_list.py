"""What an acl_file says, line by line."""

import re
from pathlib import Path

import pytest

from federator.config.reading import load
from federator.runtime.doctor.access_list import ROLES, access_list
from tests.transcripts import play, scenes

ROOT = Path(__file__).parents[3]
USERS = {"gateway": ["g"], "collector": ["c"], "steerer": ["s"], "console": ["co"]}
USUAL = {"agent": "federator", "peers": ["peer"], "outbound": {}, "users": USERS}


def lines_for(folder, toml="", id=1, **given):
    path = folder / "federator.toml"
    path.write_text(f'{toml}\n[broker]\nid = {id}\nurl = "mqtt://b"\n')
    return access_list(load(path, {}), **USUAL | given)


def rights(lines, user):
    at = lines.index(f"user {user}") + 1
    end = lines.index("", at) if "" in lines[at:] else len(lines)
    return [line.removeprefix("topic ") for line in lines[at:end]]


class Stage:
    """``toml LINES`` goes before the configuration of broker 1, or of ``broker ID``; ``outbound
    USER=ID`` and ``peer USER`` name users. ``of USER TEXT ...`` prints the rights of a user, those
    with one of the texts if there are any, ``clients USER`` those on clients' topics, and ``lines
    TEXT`` the lines with that text.
    """

    def __init__(self, folder):
        self.folder, self.given = folder, {}

    def do(self, command, *words):
        match command, words:
            case "toml", [text]:
                self.given["toml"] = text.encode().decode("unicode_escape")
            case "broker", [id]:
                self.given["id"] = int(id)
            case "outbound", _:
                pairs = (word.split("=") for word in words)
                self.given["outbound"] = {user: int(id) for user, id in pairs}
            case "peer", _:
                self.given["peers"] = words
            case "of", [user, *texts]:
                own = rights(self._lines(), user)
                yield from (r for r in own if not texts or any(text in r for text in texts))
            case "clients", [user]:
                yield from (right for right in rights(self._lines(), user) if "$" not in right)
            case "lines", [text]:
                yield from (line for line in self._lines() if text in line)

    def _lines(self):
        return lines_for(self.folder, **self.given)


@scenes(Path(__file__).with_name("access_list.txt"))
def test_each_user_has_the_rights_that_its_role_needs(path, number, tmp_path):
    play(path, number, Stage(tmp_path))


def test_the_shipped_file_is_what_the_verb_prints(tmp_path):
    users = {role: [f"federator-{role}"] for role in ROLES}
    lines = lines_for(tmp_path, peers=["federator-peer"], users=users)

    assert (ROOT / "deploy/systemd/acl").read_text() == "\n".join(lines) + "\n"


def test_every_topic_of_ours_is_named_in_one_place():
    """Else a new one would be forgotten in ACLs."""
    named = {"protocol/messages/topics.py"}
    shown = {"cli/observe/tap.py"}
    makes = re.compile(r'f"\$fed/\{')
    found = {
        str(path.relative_to(ROOT / "federator"))
        for path in (ROOT / "federator").rglob("*.py")
        if makes.search(path.read_text())
    }

    assert found == named | shown


@pytest.mark.parametrize("user", ["peer", "g", "c", "s", "co"])
def test_nobody_but_the_agent_reads_the_log_or_what_clients_publish(user, tmp_path):
    own = rights(lines_for(tmp_path), user)

    own = [right for right in own if right != "write $SYS/broker/connection/+/state"]
    assert [right for right in own if "$fed/fed/" not in right or right.endswith("#")] == []
