"""Asks a running agent over its loopback listener."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from federator.cli.options import settings_from
from federator.errors import ConfigError, LinkError

SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 67_108_864


def url_option(function: Any) -> Any:  # noqa: ANN401 - a decorator of whatever click decorates
    """``--url URL``: the agent's listener, when the configuration does not tell."""
    return click.option("--url", help="The agent's HTTP listener, e.g. http://127.0.0.1:9883.")(
        function
    )


def agent_url(config: Path | None, url: str | None) -> str:
    """Where the agent of this machine answers.

    Raises:
        ConfigError: The listener is off, or its port is not known.
    """
    if url is not None:
        return url.rstrip("/")
    settings = settings_from(config)
    if not settings.http.enabled:
        raise ConfigError("http.enabled = false: the agent cannot be asked: set true", exit_code=78)
    port: int | str = settings.http.port
    if port == 0:
        port_file = settings.state_dir / "http.port"
        try:
            port = int(port_file.read_text("ascii"))
        except (OSError, ValueError):
            raise LinkError(f"{port_file}: no port there: is `federator run` up?") from None
    host = settings.http.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def get(url: str, page: str, **query: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """The JSON of one page.

    Raises:
        LinkError: The agent does not answer, or not as an agent does.
    """
    parts = urlsplit(url)
    path = page + (
        "?" + "&".join(f"{k}={quote(v, safe='')}" for k, v in query.items()) if query else ""
    )
    try:
        if not parts.hostname:
            raise ValueError("not a URL")
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS_MAX)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()
        if response.status != http.client.OK:
            text = body[:200].decode("utf-8", errors="replace").strip()
            raise LinkError(f"{url}{page}: {response.status} {text}")
        return json.loads(body)
    except (OSError, http.client.HTTPException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise LinkError(f"{url}: {reason}: is `federator run` up?") from None
    except ValueError:
        raise LinkError(f"{url}{page}: not an answer of an agent: check the URL") from None
