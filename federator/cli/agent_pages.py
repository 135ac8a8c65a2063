"""Reads pages of a running agent over its loopback listener."""

import http.client
from contextlib import closing
from os import EX_CONFIG, EX_NOINPUT
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click

from federator.cli.options import settings_from
from federator.errors import ConfigError, DecodeError, LinkError
from federator.protocol.messages.broker_names import named, sound_name
from federator.protocol.messages.fields import json_value

SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 67_108_864

BROKER_KEYS = {
    "broker", "neighbour", "core", "controller", "substitute", "a", "b", "to", "next_hop", "origin",
    "destinations", "parents", "children", "next_hops", "substitutes", "stopped_by_rules",
    "handing_over_from",
}  # fmt: skip
"""Keys of pages with ids of brokers as values, or lists of these."""


class Names:
    """Names of brokers by id, from ``names`` of a page. The page is not trusted."""

    def __init__(self, names: object) -> None:
        self._names = names if isinstance(names, dict) else {}

    def of(self, id: object) -> str:
        """The name of the broker ``id``; empty if it has none."""
        return sound_name(self._names.get(str(id)))

    def shown(self, id: object) -> str:
        """The broker ``id`` for people, such as ``hall-3 (7)``."""
        return named(id, self.of(id))

    def beside(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 - JSON of any shape
        """``value`` from a page, with each id of a broker as shown to people."""
        match value:
            case dict():
                has_id = "broker" in value or "neighbour" in value
                left = {k: v for k, v in value.items() if not (has_id and k == "name")}
                return {k: self.beside(v, k) for k, v in left.items()}
            case list():
                return [self.beside(item, key) for item in value]
            case int() if key in BROKER_KEYS and not isinstance(value, bool):
                return self.shown(value)
            case _:
                return value


url_option = click.option("--url", help="The agent's HTTP listener, e.g. http://127.0.0.1:9883.")
"""Without it the configuration says where the agent listens."""


def agent_url(config: Path | None, url: str | None) -> str:
    """Where the agent of this machine answers; an error when it does not listen."""
    if url is not None:
        return url.rstrip("/")
    settings = settings_from(config, secrets=False)
    if not settings.http.enabled:
        text = "http.enabled = false: the agent cannot be asked: set true"
        raise ConfigError(text, exit_code=EX_CONFIG)
    port: int | str = settings.http.port
    if port == 0:
        port_file = settings.state_dir / "http.port"
        try:
            port = int(port_file.read_text("ascii"))
        except PermissionError:
            text = f"{port_file}: not readable by this user: ask as its owner, or name --url"
            raise LinkError(text) from None
        except (OSError, ValueError):
            raise LinkError(f"{port_file}: no port there: is `federator run` up?") from None
    host = settings.http.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def agents_of_grid(state: Path) -> list[str]:
    """Where the agents of a grid answer. Raises ``ConfigError``: ``state`` is no file of one."""
    try:
        brokers = json_value("state", state.read_bytes(), ANSWER_BYTES_MAX)["brokers"]
        places = (broker["agent_http"] for broker in brokers)
        ours = (f"127.0.0.1:{place}" if isinstance(place, int) else place for place in places)
        return [place if place.startswith("http://") else f"http://{place}" for place in ours]
    except OSError as error:
        reason = (error.strerror or "").lower()
        text = f"{state}: {reason}: name the file given to `federator-lab grid --state`"
        raise ConfigError(text, exit_code=EX_NOINPUT) from None
    except (DecodeError, ValueError, KeyError, TypeError):
        text = f"{state}: not a state file of a grid: write it with `federator-lab grid --state`"
        raise ConfigError(text, exit_code=EX_CONFIG) from None


def get(url: str, page: str, **query: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """The JSON of one page. Raises ``LinkError``: no answer, or none of an agent."""
    try:
        return json_value("page", get_text(url, page, **query).encode(), ANSWER_BYTES_MAX)
    except DecodeError:
        raise LinkError(f"{url}{page}: not an answer of an agent: check the URL") from None


def get_text(url: str, page: str, **query: str) -> str:
    """One page as it is. Raises ``LinkError``: as ``get``."""
    path = f"{page}?{urlencode(query, safe='', quote_via=quote)}" if query else page
    try:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError("not a URL")
        caller = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS_MAX)
        with closing(caller) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX).decode("utf-8", errors="replace")
        if response.status != http.client.OK:
            kind = response.headers.get_content_type()
            text = " ".join(body[:200].split())
            if kind != "text/plain" or not text.isprintable():  # as no page of ours
                text = "not an answer of an agent: another program listens there: see http.port"
            raise LinkError(f"{url}{page}: {response.status}: {text}")
        return body
    except (OSError, http.client.HTTPException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise LinkError(f"{url}: {reason}: is `federator run` up?") from None
    except ValueError:
        raise LinkError(f"{url}{page}: not an answer of an agent: check the URL") from None
