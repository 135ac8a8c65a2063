"""Client ids that others cannot guess, drawn for one run; an agent's at its own broker are kept.

See ``protocol.client_names``.
"""

import secrets

from federator.protocol.client_names import OWN_PREFIX, SECRET_DIGITS


def secret_name(name: str) -> str:
    """A client id that shows ``name`` to people and ends in secret digits."""
    return f"{OWN_PREFIX}{name}-{secrets.token_hex(SECRET_DIGITS // 2)}"
