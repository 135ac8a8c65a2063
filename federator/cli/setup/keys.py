"""``federator keys``: the keys of a signed federation. For the operator, on a safe host."""

import json
import re
import time
from datetime import UTC, datetime
from os import EX_DATAERR, EX_NOINPUT
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from federator.cli.options import (
    FILE,
    FOLDER,
    PLACE,
    columns,
    json_option,
    option,
    print_result,
    write_new,
)
from federator.errors import ConfigError, DecodeError
from federator.protocol.trust.certificates import (
    REVOKED_MAX,
    SERIAL_BYTES,
    Role,
    decode_certificate,
    decode_revocations,
    decode_signed,
    fingerprint,
)
from federator.protocol.trust.key_files import (
    KEY_FILE_BYTES_MAX,
    AgentKeys,
    AnyKeyFile,
    FederationKey,
    FederationPublic,
    KeyFile,
    RevocationFile,
    read_any_key_file,
    read_key_file,
    write_key_file,
)
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.storage import damage
from federator.runtime.storage.durable import SHARED_FILE, write_whole
from federator.runtime.trust.key_maker import KeyMaker

KEY, PUBLIC, REVOKED, ISSUED = "federation.key", "federation.pub", "revocations", "issued.jsonl"
DAYS, DAYS_MAX = 825, 36_500

_P = TypeVar("_P", FederationKey, RevocationFile)

_folder = click.option(
    "--dir", "folder", type=FOLDER, default=Path(), help="Folder of the federation key. [.]"
)


@click.group(name="keys")
def command() -> None:
    """Make, show and take back the keys of a signed federation."""


@command.command()
@click.argument("folder", type=FOLDER)
@option("--federation", default="fed", help="The federation's name.")
@json_option
def init(folder: Path, federation: str, as_json: bool) -> None:
    """Make a federation key in FOLDER: federation.key is the secret, federation.pub for agents."""
    maker = KeyMaker.new(_name(federation))
    folder.mkdir(parents=True, exist_ok=True)
    _create(folder / KEY, maker.key)
    _create(folder / PUBLIC, maker.public, mode=0o644)
    print_ = fingerprint(maker.public.key)
    text = f"{folder / KEY}: keep it secret, and a copy in another place\n"
    text += f"{folder / PUBLIC}: for every agent ({print_})"
    files = {"secret": str(folder / KEY), "public": str(folder / PUBLIC)}
    print_result({**files, "fingerprint": print_}, [text], as_json=as_json)


@command.command()
@option("--role", type=click.Choice(get_args(Role)), default="agent", help="Who shall have it.")
@click.option("--broker", type=click.IntRange(0, BROKER_ID_MAX), help="Id of an agent's broker.")
@click.option("--name", help="Name of who has another role.")
@option("--days", type=click.IntRange(1, DAYS_MAX), default=DAYS)
@click.option("--out", type=FILE, help="File. [ROLE-ID.key or ROLE-NAME.key beside it]")
@_folder
@json_option
def issue(
    role: Role,
    broker: int | None,
    name: str | None,
    days: int,
    out: Path | None,
    folder: Path,
    as_json: bool,
) -> None:
    """Make the key and the certificate of one agent, gateway, operator, collector or steerer."""
    subject = broker if role == "agent" else name
    if subject is None or (broker is None) == (name is None):
        raise click.UsageError(f"{'--broker ID' if role == 'agent' else '--name NAME'} wanted")
    maker, now_s = _key_maker(folder), int(time.time())
    paper, certificate = maker.issue(
        BrokerId(broker or 0), days=days, now_s=now_s, role=role, name=_name(name) if name else ""
    )
    path = out or folder / f"{role}-{subject}.key"
    _create(path, paper)
    row = {
        "serial": certificate.serial.hex(),
        **({"broker": broker} if broker is not None else {"holder": certificate.holder}),
        "expires": certificate.expires_s,
    }
    with (folder / ISSUED).open("ab") as file:
        file.write(damage.lines([json.dumps(row).encode()]))
    until = _until(certificate.expires_s)
    text = f"{path}: {certificate.holder}, serial {row['serial']}, {until}"
    print_result({"file": str(path), **row}, [text], as_json=as_json)


@command.command()
@click.argument("serials", nargs=-1)
@click.option("--broker", type=click.IntRange(0, BROKER_ID_MAX), help="All certificates of it.")
@_folder
@json_option
def revoke(serials: tuple[str, ...], broker: int | None, folder: Path, as_json: bool) -> None:
    """Take certificates back. Give the file `revocations` to one agent: the others learn of it."""
    maker = _key_maker(folder)
    taken_back = {_serial(text) for text in serials}
    if broker is not None:
        of_broker = {row["serial"] for row in _issued(folder) if row.get("broker") == broker}
        if not of_broker:
            text = f"--broker {broker}: {folder / ISSUED} knows no certificate of it"
            raise ConfigError(text, exit_code=EX_DATAERR)
        taken_back |= {_serial(text) for text in of_broker}
    if not taken_back:
        raise click.UsageError("name serials, or --broker ID")
    path, (number, before) = folder / REVOKED, _revoked(folder)
    if len(before | taken_back) > REVOKED_MAX:
        text = f"{len(before | taken_back)} revoked certificates, at most {REVOKED_MAX}: "
        raise ConfigError(text + "make a new federation key", exit_code=EX_DATAERR)
    listed = maker.revoke(before | taken_back, number=number + 1)
    revocations = RevocationFile(federation=maker.key.federation, revocations=listed)
    write_whole(path, write_key_file(revocations), mode=SHARED_FILE)  # it is for every agent
    text = f"{path}: list {number + 1}, {len(before | taken_back)} certificates"
    revoked = sorted(serial.hex() for serial in before | taken_back)
    print_result(
        {"file": str(path), "number": number + 1, "serials": revoked}, [text], as_json=as_json
    )


@command.command()
@click.argument("path", type=PLACE)
@json_option
def show(path: Path, as_json: bool) -> None:
    """Say what a key file, or a folder of them, holds. Secrets are not shown."""
    files = [path]
    if path.is_dir():
        named = (path / name for name in (KEY, PUBLIC, REVOKED))
        files = [file for file in named if file.exists()]
    held = [(file, *_describe(file)) for file in files]
    lines = [f"{file}: {text}" for file, text, _ in held]
    issued = _issued(path) if path.is_dir() else []
    revoked = {serial.hex() for serial in _revoked(path)[1]} if path.is_dir() else set()
    rows = []
    for row in issued:
        state = "revoked" if row["serial"] in revoked else _until(row["expires"])
        rows.append((row["serial"], row.get("holder") or f"broker {row['broker']}", state))
    lines += columns(rows) if rows else []
    rows_issued = [{**row, "revoked": row["serial"] in revoked} for row in issued]
    record = {"files": [{"file": str(file), **of} for file, _, of in held], "issued": rows_issued}
    print_result(record, lines, as_json=as_json)


def _describe(path: Path) -> tuple[str, dict[str, object]]:
    """The contents of a file, for people and for machines."""
    try:
        return _described(read_any_key_file(_read_file(path)))
    except DecodeError as error:
        text = f"{path}: {error}: name a file that federator keys made"
        raise ConfigError(text, exit_code=EX_DATAERR) from error


def _described(paper: AnyKeyFile) -> tuple[str, dict[str, object]]:
    record: dict[str, object]
    match paper:
        case FederationKey(federation=federation):
            print_ = fingerprint(KeyMaker(paper).public.key)
            record = {"kind": "federation key", "federation": federation, "fingerprint": print_}
            return f"secret key of federation {federation!r}, {print_}", record
        case FederationPublic(federation=federation):
            print_ = fingerprint(paper.key)
            record = {"kind": "public key", "federation": federation, "fingerprint": print_}
            return f"key of federation {federation!r}, {print_}", record
        case AgentKeys():
            signed = decode_signed(paper.certificate)
            certificate, signed_by = decode_certificate(signed.text), fingerprint(signed.issuer)
            agent = "agent of " if certificate.role == "agent" else ""
            text = f"{agent}{certificate.holder} in {certificate.federation!r}, serial "
            text += f"{certificate.serial.hex()}, {_until(certificate.expires_s)}, "
            return f"{text}signed by {signed_by}", {
                "kind": certificate.role,
                "holder": certificate.holder,
                "federation": certificate.federation,
                "serial": certificate.serial.hex(),
                "expires": certificate.expires_s,
                "signed_by": signed_by,
            }
        case RevocationFile():
            listed = decode_revocations(decode_signed(paper.revocations).text)
            text = f"list {listed.number} of {len(listed.serials)} revoked certificates"
            serials = sorted(serial.hex() for serial in listed.serials)
            return text, {"kind": "revocations", "number": listed.number, "serials": serials}


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise click.BadParameter(f"{text!r}: 1 to 64 of A-Z a-z 0-9 _ . - wanted")
    return text


def _key_maker(folder: Path) -> KeyMaker:
    return KeyMaker(_paper(folder / KEY, FederationKey))


def _paper(path: Path, kind: type[_P]) -> _P:
    try:
        return read_key_file(_read_file(path), kind)
    except DecodeError as error:
        raise ConfigError(
            f"{path}: {error}: make it with federator keys", exit_code=EX_DATAERR
        ) from error


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(KEY_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{path}: {reason}: make it with federator keys init", exit_code=EX_NOINPUT
        ) from error


def _issued(folder: Path) -> list[dict[str, Any]]:
    """The issued certificates; a damaged line is reported and skipped."""
    path = folder / ISSUED
    lines = list(damage.read_lines(path.read_bytes())) if path.exists() else []
    rows, damaged = [], 0
    for line in lines:
        try:
            rows.append(json.loads(line or b""))
        except ValueError:
            damaged += 1
    if damaged:
        what = f"{damaged} of {len(lines)} lines are damaged"
        click.echo(f"federator: {path}: {what}: revoke by serial what they told of", err=True)
    return rows


def _revoked(folder: Path) -> tuple[int, frozenset[bytes]]:
    """Number and serials of the newest list."""
    if not (folder / REVOKED).exists():
        return 0, frozenset()
    paper = _paper(folder / REVOKED, RevocationFile)
    listed = decode_revocations(decode_signed(paper.revocations).text)
    return listed.number, listed.serials


def _serial(text: str) -> bytes:
    if not re.fullmatch(f"[0-9a-f]{{{2 * SERIAL_BYTES}}}", text):
        raise click.BadParameter(f"{text!r} is no serial: 16 hexadecimal digits wanted")
    return bytes.fromhex(text)


def _create(path: Path, paper: KeyFile, *, mode: int = 0o600) -> None:
    write_new(path, write_key_file(paper), mode=mode)


def _until(expires_s: float) -> str:
    day = datetime.fromtimestamp(float(expires_s), UTC).date()
    return f"{'expired' if expires_s < time.time() else 'until'} {day.isoformat()}"
