"""Whatever is in the file: it can be used or it is refused in one line, never a traceback."""

import random
from pathlib import Path

import pytest

from federator.config.reading import load
from federator.errors import ConfigError

MUTANTS = 2_000
CODES = {66, 77, 78}

WHOLE = """\
federation = "fed"
state_dir = "/var/lib/federator"
[broker]
id = 1
url = "mqtt://127.0.0.1:1883"
advertise = "mqtt://gw1:1883"
username = "agent"
priority = -5
[[neighbours]]
id = 2
url = "mqtt://127.0.0.1:2883"
cost = 1
[[neighbours]]
url = "mqtts://[::1]:8884"
[links]
hello_interval_ms = 1000
hello_timeout_ms = 3000
dial_back = true
[mesh]
redundancy = 2
[data]
frame_bytes_max = 262144
[discovery]
filters = ["a/+/b", '''c/#''', \"""d\"""] # three
match_all = "local"
[http]
host = "127.0.0.1"
port = 0
[log]
format = "json"
"""

PIECES = (
    "[", "]", "[[", "=", '"', "'''", "#", "\n", "\x00", "\u2028", "\ufeff", "9" * 400, "-", "true",
    "nan", "1979-05-27", "{a = 1}", "[broker]", "[[neighbours]]", "id = 1", 'url = "mqtt://x"',
    "\\u0000", "\r", "/dev/null", "$", "0x7f", "1e999", "é", "federation.x = 1", "broker = 1",
    "password_file = '/'",
)  # fmt: skip


def mutant(rng: random.Random) -> bytes:
    """The whole file after one to eight accidents."""
    data = bytearray(WHOLE.encode())
    for _ in range(rng.randint(1, 8)):
        at, length = rng.randrange(len(data) + 1), rng.randint(0, 20)
        match rng.randrange(6):
            case 0:
                del data[at : at + length]
            case 1:
                data[at:at] = rng.choice(PIECES).encode()
            case 2:
                data[at : at + length] = rng.choice(PIECES).encode()
            case 3:
                data[at:at] = rng.randbytes(length)
            case 4:
                begin = rng.randrange(len(data) + 1)
                data[at:at] = data[begin : begin + 10 * length]
            case _:
                lines = data.split(b"\n")
                rng.shuffle(lines)
                data = bytearray(b"\n".join(lines))
        if not data:
            data = bytearray(b"\n")
    return bytes(data)


def refusal(path: Path, environ: dict[str, str]) -> ConfigError | None:
    """What ``load`` says; ``None`` when the configuration can be used. Anything else fails."""
    try:
        load(path, environ)
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_file_is_used_or_refused_in_one_line(seed, tmp_path):
    rng = random.Random(seed)
    path = tmp_path / "f.toml"
    path.touch(0o600)
    refused = 0
    for number in range(MUTANTS // 4):
        path.write_bytes(mutant(rng))

        if error := refusal(path, {}):
            refused += 1
            text = str(error)
            assert error.exit_code in CODES, (seed, number)
            assert text.isprintable(), (seed, number, text)
            assert text.startswith(f"{path}:"), (seed, number, text)
            assert len(text) < 1_000, (seed, number, text)

    assert MUTANTS // 8 < refused < MUTANTS // 4  # neither all hopeless nor all harmless


@pytest.mark.parametrize("seed", range(200))
def test_a_mutated_environment_is_used_or_refused_in_one_line(seed, tmp_path):
    rng = random.Random(seed)
    path = tmp_path / "f.toml"
    path.write_text(WHOLE)
    names = ("BROKER__ID", "NEIGHBOURS", "MESH__REDUNDANCY", "DISCOVERY__FILTERS", "BROKER", "LOG")
    name = f"FEDERATOR_{rng.choice(names)}"
    value = "".join(rng.choice(PIECES + tuple('[]{}"1,:')) for _ in range(rng.randint(0, 5)))

    error = refusal(path, {name: value})

    if error is not None:
        assert error.exit_code == 78
        assert str(error).isprintable()
        assert str(error).startswith(f"${name}: ")
