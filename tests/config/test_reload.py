"""What differs between two configurations, and what of it a reload takes up."""

import tomllib
from pathlib import Path

import pytest

from federator.config.all_brokers.collector import CollectorSettings
from federator.config.gateway import GatewaySettings
from federator.config.reload import differences, merged, taken_by_reload
from federator.config.section import Takes
from federator.config.settings import Settings
from federator.config.validation import validated
from federator.errors import ConfigError
from tests.transcripts import play, scenes


class Stage:
    """``old TEXT`` and ``new TEXT`` are more of two configurations; ``differences`` prints what
    differs, and whether it is live or waits for a restart. ``reload`` goes on with the old one as a
    reload of the new one leaves it, and says if that is the new one.
    """

    def __init__(self):
        first = 'security = "open"\nbroker = {id = 1, url = "mqtt://127.0.0.1"}\n'
        self.text = {"old": first, "new": first}
        self.settings = {}

    def do(self, command, *words):
        match command, words:
            case (("old" | "new"), [text]):
                self.text[command] += text.encode().decode("unicode_escape") + "\n"
            case "differences", []:
                old, new = self._settings("old"), self._settings("new")
                for change in differences(old, new):
                    yield f"{change} ({'live' if change.takes is Takes.RELOAD else 'restart'})"
            case "reload", []:
                try:
                    self.settings["old"] = merged(self._settings("old"), self._settings("new"))
                except ConfigError as error:
                    yield f"{error}"
                if self.settings["old"] == self.settings["new"]:
                    yield "the new one"

    def _settings(self, which):
        if which not in self.settings:
            self.settings[which] = validated(Settings, tomllib.loads(self.text[which]))
        return self.settings[which]


@scenes(Path(__file__).with_name("reload.txt"))
def test_what_differs_and_what_a_reload_takes_up(path, number):
    play(path, number, Stage())


def test_a_long_list_is_told_in_short():
    broker = {"id": 1, "url": "mqtt://127.0.0.1"}
    keep = {"keep": [f"topic/{i}" for i in range(999)]}
    (change,) = differences(
        validated(Settings, {"broker": broker}),
        validated(Settings, {"broker": broker, "rules": keep}),
    )

    assert len(str(change)) < 120


@pytest.mark.parametrize(
    ("root", "live"),
    [
        (
            Settings,
            [
                "neighbours but proxy, proxy_username, proxy_password_file, transport, dial",
                "leaves.import",
                "leaves.export",
                "leaves.deny",
                "links.cost",
                "rules but rename",
                "log.level",
            ],
        ),
        (GatewaySettings, ["log.level"]),
        (CollectorSettings, ["log.level"]),
    ],
)
def test_every_daemon_says_what_a_reload_takes_up(root, live):
    assert list(taken_by_reload(root)) == live
