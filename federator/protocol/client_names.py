"""Client ids of ours, and which part of them may be shown.

A client that connects with the client id of another disconnects that one, and gets what waits in
its session: MQTT asks for no more than a login. So our client ids end in a secret part, which
is removed where an id is shown, in a log line or on a page.

Source: OASIS MQTT 5.0, 3.1.4-3; docs/security.md, "Names at brokers".
"""

import re
from typing import Final

OWN_PREFIX: Final = "federator-"
"""The prefix of the client ids of agents, gateways, collectors and our verbs."""

SECRET_DIGITS: Final = 24
"""Hexadecimal: 96 bits."""

_SECRET: Final = re.compile(rf"[0-9a-f]{{{SECRET_DIGITS}}}")
_NAME: Final = re.compile(rf"({OWN_PREFIX}\S{{1,300}}?)-{_SECRET.pattern}(?![0-9a-f])")


def is_secret(text: str) -> bool:
    """Whether ``text`` has the form of the secret part of a client id."""
    return _SECRET.fullmatch(text) is not None


def shown(text: str) -> str:
    """``text``, a client id or a line with some, without the secret parts of ours."""
    return _NAME.sub(r"\1", text)
