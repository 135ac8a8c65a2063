"""What Home Assistant's Supervisor takes as an app (add-on), written down from its documentation.

Source: Home Assistant Developer Docs, "App configuration", "Create an app repository", and the
service ``mqtt`` of "App communication", as they stood in August 2026. Only keys that are documented
there are known, so a misspelt one is found.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SERVICE: Mapping[str, object] = {
    "host": "core-mosquitto", "port": 1883, "ssl": False, "protocol": "3.1.1",
    "username": "addons", "password": "pass\\word \"quoted\"", "addon": "core_mosquitto",
}  # fmt: skip
"""What the app Mosquitto broker says of itself."""

ELEMENT = re.compile(
    r"(bool|email|url|port|device(\(subsystem=[a-z]+\))?|(str|password)(\(\d*,\d*\))?"
    r"|int(\((-?\d+)?,(-?\d+)?\))?|float(\([-.\d]*,[-.\d]*\))?|match\(.*\)|list\(.+\))\??"
)
"""One type of an option; ``?`` behind it: the option may be missing."""

Element = Annotated[str, Field(pattern=rf"^{ELEMENT.pattern}$")]
Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Mapped(Part):
    """A folder of the machine that the app sees."""

    type: Literal[
        "homeassistant_config", "addon_config", "ssl", "addons", "backup", "share", "media",
        "all_addon_configs", "data",
    ]  # fmt: skip
    read_only: bool = True
    path: Text | None = None


class Manifest(Part):
    """``config.yaml``: what is required, and of the rest what could be of use to us."""

    name: Text
    version: Text
    slug: Annotated[str, Field(pattern=r"^[-_.A-Za-z0-9]+$")]
    description: Text
    arch: Annotated[list[Literal["aarch64", "amd64"]], Field(min_length=1)]
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    startup: Literal["initialize", "system", "services", "application", "once"] = "application"
    boot: Literal["auto", "manual", "manual_only"] = "auto"
    stage: Literal["stable", "experimental", "deprecated"] = "stable"
    init: bool = True
    ports: dict[Annotated[str, Field(pattern=r"^\d+/(tcp|udp)$")], int | None] = {}
    map: list[Mapped] = []
    services: list[Annotated[str, Field(pattern=r"^(mqtt|mysql):(provide|want|need)$")]] = []
    tmpfs: bool = False
    timeout: Annotated[int, Field(ge=10, le=300)] = 10
    backup: Literal["hot", "cold"] = "hot"
    backup_exclude: list[Text] = []
    watchdog: (
        Annotated[
            str,
            Field(pattern=r"^(https?|\[PROTO:\w+\]|tcp)://\[HOST\]:(\[PORT:\d+\]|\d+)"),
        ]
        | None
    ) = None
    ingress: bool = False
    image: Text | None = None
    options: dict[str, Any] = {}
    options_schema: Annotated[
        dict[str, Element | list[Element | dict[str, Element]] | dict[str, Element]],
        Field(alias="schema"),
    ] = {}

    @field_validator("options")
    @classmethod
    def _two_deep_at_most(cls, options: dict[str, Any]) -> dict[str, Any]:
        def depth(value: Any) -> int:
            within = value.values() if isinstance(value, dict) else value
            nested = isinstance(value, dict | list)
            return 1 + max(map(depth, within), default=0) if nested else 0

        assert depth(options) <= 1 + 2
        return options


class Repository(Part):
    """``repository.yaml``."""

    name: Text
    url: Text | None = None
    maintainer: Text | None = None


class Told(Part):
    """One option in the words of the page on which it is set."""

    name: Text
    description: Text


class Translations(Part):
    """``translations/LANGUAGE.yaml``."""

    configuration: dict[str, Told] = {}
    network: dict[str, Text] = {}


@contextmanager
def supervisor(status: int = 200, body: object = None, **service: object) -> Iterator[str]:
    """Answers ``/services/mqtt`` as the Supervisor does; yields its URL.

    Args:
        status: Of the answer.
        body: Of the answer, instead of one that is good.
        service: What is otherwise than in ``SERVICE``.
    """
    answer = body or {"result": "ok", "data": {**SERVICE, **service}}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/services/mqtt" and self.headers["Authorization"] == "Bearer t"
            self.send_response(status if known else 403)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
