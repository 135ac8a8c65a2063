"""The configuration reference, written from the settings themselves so that it cannot be wrong."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from federator.config.brokers import NeighbourSettings
from federator.config.collector import CollectedBrokerSettings, CollectorSettings
from federator.config.gateway import (
    GatewayBrokerSettings,
    GatewaySettings,
    ListenerSettings,
    UpstreamSettings,
)
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

`federator check-config` reads all of it, certificates and secret files included, and says in one
line what to mend: `federator: FILE[:LINE]: what: how to mend`. Exit codes are those of
`sysexits.h`:

| code | meaning |
| --- | --- |
| 64 | the command line is wrong |
| 66 | the configuration file is missing |
| 69 | a port is taken; with `--fail-fast`: the broker cannot be reached |
| 70 | a mistake of ours |
| 73 | the state folder cannot be made or written |
| 75 | another agent uses the state folder |
| 77 | a file cannot be read, or others can read a secret; with `--fail-fast`: credentials refused |
| 78 | the configuration, or with `--fail-fast` the broker's, must be mended; or it has an agent |

By default `mqtt://` to other hosts is allowed, so that joining stays five lines; when a user name
would travel in clear the agent warns at start (`config.credentials_in_clear`). Set
`links.allow_plaintext = false` to make it an error.

This page is written by `federator check-config --reference > docs/configuration.md`.
"""

_NOT_IN_TABLE = "|"
_NAMES = {Path: "path", SecretStr: "text", bool: "true or false", int: "integer", str: "text"}


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
```
"""


def reference() -> str:
    """Markdown: every key of an agent, a gateway and a collector: its type, default, meaning."""
    blocks = [_HEAD, *_sections(Settings, {"neighbours": NeighbourSettings})]
    tables: dict[str, type[BaseModel]]
    tables = {
        "listeners": ListenerSettings,
        "brokers": GatewayBrokerSettings,
        "upstreams": UpstreamSettings,
    }
    blocks += [_GATEWAY_HEAD, *_sections(GatewaySettings, tables)]
    blocks += [_COLLECTOR_HEAD]
    blocks += _sections(CollectorSettings, {"brokers": CollectedBrokerSettings})
    return "\n".join(blocks)


def _sections(root: type[BaseModel], tables: dict[str, type[BaseModel]]) -> list[str]:
    """The tables of ``root``, whose lists of tables are ``tables``."""
    fields = root.model_fields
    top = {name: info for name, info in fields.items() if _section(info) is None}
    plain = {name: info for name, info in top.items() if name not in tables}
    blocks = [_table("## Top level", "Before the first section.", plain)]
    for name, info in fields.items():
        if (section := _section(info)) is not None:
            blocks.append(_table(f"## [{name}]", section.__doc__ or "", section.model_fields))
        elif name in tables:
            section = tables[name]
            blocks.append(_table(f"## [[{name}]]", section.__doc__ or "", section.model_fields))
    return blocks


def _section(info: FieldInfo) -> type[BaseModel] | None:
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _table(title: str, about: str, fields: dict[str, FieldInfo]) -> str:
    lines = [title, "", " ".join(about.split()), "", "| key | type | default | meaning |"]
    lines.append("| --- | --- | --- | --- |")
    for name, info in fields.items():
        meaning = (info.description or "").replace(_NOT_IN_TABLE, "\\|")
        name = info.alias or name
        lines.append(f"| `{name}` | {_type(info)} | {_default(info)} | {meaning} |")
    return "\n".join(lines) + "\n"


def _type(info: FieldInfo) -> str:
    kinds = [kind for kind in _options(info.annotation) if kind is not NoneType]
    if get_origin(kinds[0]) is tuple:
        item = get_args(kinds[0])[0]
        tables = isinstance(item, type) and issubclass(item, BaseModel)
        return f"list of {'tables' if tables else 'text'}"
    literals = [text for kind in kinds if get_origin(kind) is Literal for text in get_args(kind)]
    if literals:
        return ", ".join(f'`"{text}"`' for text in literals)
    name = _NAMES[kinds[0]]
    low = high = None
    for rule in _rules(info):
        low = getattr(rule, "ge", low)
        high = getattr(rule, "le", high)
        below = getattr(rule, "lt", None)
        high = high if below is None else below - 1
    return name if low is None or high is None else f"{name}, {low} to {high}"


def _options(kind: object) -> list[Any]:
    """The plain types of an annotation: those of ``A | B``, without what is said about them."""
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [plain for option in get_args(kind) for plain in _options(option)]
    return [kind]


def _rules(info: FieldInfo) -> list[object]:
    """The constraints of a field, also those inside ``... | None``."""
    inner = [arg for arg in getattr(info.annotation, "__args__", ()) if arg is not type(None)]
    nested = [meta for arg in inner for meta in getattr(arg, "__metadata__", ())]
    return [
        rule
        for meta in [*info.metadata, *nested]
        for rule in ([*meta.metadata] if isinstance(meta, FieldInfo) else [meta])
    ]


def _default(info: FieldInfo) -> str:
    if info.default is PydanticUndefined:
        return "required"
    if info.default is None:
        return ""
    if isinstance(info.default, bool):
        return f"`{str(info.default).lower()}`"
    if isinstance(info.default, tuple):
        return f"`{list(info.default)}`".replace("'", '"')
    return f"`{info.default}`" if isinstance(info.default, int) else f'`"{info.default}"`'
