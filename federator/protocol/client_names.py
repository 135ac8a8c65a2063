"""Names under which brokers know us, and what of them may be told.

Whoever connects to a broker under a client id throws out the client that has it, and gets what
waits in its session: MQTT asks for no more than a login. So our names end in a part that nobody
else knows, and whoever shows a name, in a log line or on a page, cuts that part off.

Source: OASIS MQTT 5.0, 3.1.4-3; docs/security.md, "Names at brokers".
"""

import re
from typing import Final

OWN_PREFIX: Final = "federator-"
"""What the client ids of agents, gateways, collectors and our verbs begin with."""

SECRET_DIGITS: Final = 24
"""Hexadecimal: 96 bits."""

_SECRET: Final = re.compile(rf"[0-9a-f]{{{SECRET_DIGITS}}}")
_NAME: Final = re.compile(rf"({OWN_PREFIX}\S{{1,300}}?)-{_SECRET.pattern}(?![0-9a-f])")


def is_secret(text: str) -> bool:
    """Whether ``text`` has the form of the secret part of a name."""
    return _SECRET.fullmatch(text) is not None


def shown(text: str) -> str:
    """What people are told of ``text``, a client id or a line with some: ours without secrets."""
    return _NAME.sub(r"\1", text)
