"""Prints the configuration reference from the settings, so that the two agree.

The meaning of a key is a string below it, parsed from the source only for a reference: doing so at
each start of an agent would take longer than all other work on its settings.
"""

import ast
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Interval

from federator.config.all_brokers.collector import CollectorSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.config.all_brokers.steerer import SteererSettings
from federator.config.brokers import Secret
from federator.config.gateway import GatewaySettings
from federator.config.reload import takes
from federator.config.section import Key, Section, Takes, keys_of, section_in, tables_of
from federator.config.settings import Settings

_HEAD = """\
# Configuration

One TOML file, by default `/etc/federator/federator.toml`. It names your broker, any one broker that
already takes part, and the keys of this agent ([security.md](security.md)):

```toml
[broker]
id = 1
url = "mqtt://127.0.0.1:1883"
[[neighbours]]
url = "mqtt://site-2:1883"
[keys]
agent_file = "/etc/federator/agent-1.key"
federation_files = ["/etc/federator/federation.pub"]
```

In place of `[keys]`, `security = "open"` as the first line believes whoever may publish on the
brokers.

Every key can also come from the environment, which wins over the file: `broker.id` is
`FEDERATOR_BROKER__ID`. Lists are JSON: `FEDERATOR_NEIGHBOURS='[{"url": "mqtt://site-2"}]'`. With
`FEDERATOR_BROKER__...` set no file is needed. Variables that name no section, such as
`FEDERATOR_PORT`, are left alone: orchestrators set such names by themselves.

Relative paths go by the folder of the file that names them; in the environment, by the working
folder.

`federator check-config` reads all of it, certificates and secret files included, and says in one
line what to mend: `federator: FILE[:LINE]: what: how to mend`. Exit codes are
[listed with the verbs](cli.md#exit-codes).

`federator init` asks five questions and writes such a file. Editors with taplo (Even Better TOML)
complete and judge keys by its first line, `#:schema FILE`; `federator check-config --schema agent`
prints that schema, and those of `gateway`, `collector` and `steerer`.

By default `mqtt://` to other hosts is allowed, so that joining stays five lines; when a user name
would travel in clear the agent warns at start (`config.credentials_in_clear`). Set
`links.allow_plaintext = false` to make it an error.

Keys marked *Live* take a reload: `systemctl reload federator`, or `SIGHUP`. The file is read again
and checked as a whole, and either all that is live in it is followed at once, without a
connection or a message being lost, or nothing is, and the log says in one line what to mend
(`config.refused`). What else has changed waits for a restart, and is named in the log
(`config.restart_wanted`) and by `federator status`. Files of passwords that neighbours name are
read again, too. Variables of the environment are those of the start, and still win.

This page is written by `federator check-config --reference > docs/configuration.md`.
"""

_NAMES = {
    Path: "path",
    Secret: "text",
    bool: "true or false",
    float: "number",
    int: "integer",
    str: "text",
}


_GATEWAY_HEAD = """\
# The gateway's configuration

`federator gateway -c FILE` reads a file of its own, by default `/etc/federator/gateway.toml`, with
the same manners ([gateway.md](gateway.md) tells what a gateway does):

```toml
name = "gate-1"
[[listeners]]
host = "0.0.0.0"
[[brokers]]
id = 1
url = "mqtt://broker-1:1883"
[[brokers]]
id = 2
url = "mqtt://broker-2:1883"
```

`federator gateway -c FILE --check` reads all of it and stops there.
"""


_COLLECTOR_HEAD = """\
# The collector's configuration

`federator collect --to FOLDER --broker URL` needs no file ([collector.md](collector.md) tells what
a collector does). One for credentials and the rest is read from `-c FILE`, by default
`/etc/federator/collector.toml` where that exists, with the same manners:

```toml
landing = "/var/lib/federator/landing"
[[brokers]]
url = "mqtts://broker-1"
[login]
username = "collector"
password_file = "/etc/federator/collector.password"
hosts = ["*.example.org"]       # where else the password may go
[keys]
collector_file = "/etc/federator/collector-NAME.key"
federation_files = ["/etc/federator/federation.pub"]
```
"""


_STEERER_HEAD = """\
# The steerer's configuration

`federator steer --broker URL` needs no file ([steering.md](steering.md) tells what a steerer does).
One for credentials, keys and the rest is read from `-c FILE`, by default
`/etc/federator/steer.toml` where that exists, with the same manners:

```toml
[[brokers]]
url = "mqtts://broker-1"
[login]
username = "steerer"
password_file = "/etc/federator/steerer.password"
hosts = ["*.example.org"]       # where else the password may go
[keys]
steerer_file = "/etc/federator/steerer-NAME.key"
federation_files = ["/etc/federator/federation.pub"]
```
"""


_CONSOLE_HEAD = """\
# The console's configuration

`federator console --broker URL` needs no file ([console.md](console.md) tells what a console does).
One for credentials, keys, operators and the rest is read from `-c FILE`, by default
`/etc/federator/console.toml` where that exists, with the same manners:

```toml
history = "http://127.0.0.1:8650"  # federator-analytics serve
[[brokers]]
url = "mqtts://broker-1"
[login]
username = "console"
password_file = "/etc/federator/console.password"
hosts = ["*.example.org"]       # where else the password may go
[keys]
operator_file = "/etc/federator/operator-NAME.key"
federation_files = ["/etc/federator/federation.pub"]
[operators]
file = "/etc/federator/operators"
```
"""


DAEMONS: Final[dict[str, tuple[type[Section], str]]] = {
    "agent": (Settings, _HEAD),
    "gateway": (GatewaySettings, _GATEWAY_HEAD),
    "collector": (CollectorSettings, _COLLECTOR_HEAD),
    "steerer": (SteererSettings, _STEERER_HEAD),
    "console": (ConsoleSettings, _CONSOLE_HEAD),
}
"""The settings of each daemon, and what its reference begins with."""


def reference() -> str:
    """All keys of all daemons as Markdown, with type, default and meaning."""
    return "\n".join(block for root, head in DAEMONS.values() for block in (head, *_sections(root)))


def meanings(section: type[Section]) -> dict[str, str]:
    """The string below each key of ``section``, or of a section that it extends."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__[: section.__mro__.index(Section)]):
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for key, below in itertools.pairwise(definition.body):
            if isinstance(key, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(key.target)] = " ".join(ast.literal_eval(below.value).split())
    return found


def _sections(root: type[Section]) -> Iterator[str]:
    keys = keys_of(root)
    tables = {name: table for name, key in keys.items() if (table := tables_of(key))}
    plain = [name for name in keys if name not in tables]
    yield _table("## Top level", "Before the first section.", root, plain)
    for name, table in tables.items():
        title = f"## [{name}]" if section_in(keys[name].kind) else f"## [[{name}]]"
        yield _table(title, table.__doc__ or "", table, list(keys_of(table)), takes(keys[name]))


def _table(
    title: str,
    about: str,
    section: type[Section],
    keys: list[str],
    how: Takes = Takes.RESTART,
) -> str:
    lines = [title, "", " ".join(about.split()), "", "| key | type | default | meaning |"]
    lines.append("| --- | --- | --- | --- |")
    texts = meanings(section)
    infos = keys_of(section)
    for name in keys:
        key = infos[name]
        meaning = texts.get(key.attribute, "").replace("|", "\\|")
        meaning += " *Live.*" if takes(key, how) is Takes.RELOAD else ""
        lines.append(f"| `{name}` | {_type(key)} | {_default(key)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _type(key: Key) -> str:
    kinds = [kind for kind in _options(key.kind) if kind is not NoneType]
    if get_origin(kinds[0]) is tuple:
        item = get_args(kinds[0])[0]
        if get_args(item)[:1] == (int,):
            return "list of whole numbers"
        return f"list of {'tables' if section_in(item) else 'text'}"
    literals = [text for kind in kinds if get_origin(kind) is Literal for text in get_args(kind)]
    if literals:
        return ", ".join(f'`"{text}"`' for text in literals)
    name = _NAMES[kinds[0]]
    low = high = None
    for rule in _rules(key):
        if isinstance(rule, Interval):
            low, high = rule.ge, rule.le if rule.lt is None else rule.lt - 1  # type: ignore[operator]
    return name if low is None or high is None else f"{name}, {low} to {high}"


def _options(kind: object) -> list[Any]:
    """The plain types of an annotation: those of ``A | B``, without ``Annotated``."""
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [plain for option in get_args(kind) for plain in _options(option)]
    return [kind]


def _rules(key: Key) -> list[object]:
    """The constraints of a key, also those inside ``... | None``."""
    nested = [rule for kind in get_args(key.kind) for rule in getattr(kind, "__metadata__", ())]
    return [*key.rules, *nested]


def _default(key: Key) -> str:
    if key.default is MISSING:
        return "required"
    if key.default is None:
        return ""
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    if isinstance(key.default, tuple):
        return f"`{list(key.default)}`".replace("'", '"')
    return f"`{key.default}`" if isinstance(key.default, int | float) else f'`"{key.default}"`'
