"""TLS files, checked before they are used: the error of a refused connection says much less.

``ssl`` checks that a key belongs to a certificate, but returns the validity of peers' certificates
only, and the package cryptography would cost an agent 4 MB at rest, or 11 MB without keys. So we
read it from the DER bytes, in the layout of RFC 5280, 4.1: certificate > to-be-signed > [version],
serial, algorithm, issuer, validity.
"""

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

_UTC_TIME, _VERSION = 0x17, 0xA0  # tags
_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
PEM_BYTES_MAX = 1_048_576
_CLIENT = ssl.PROTOCOL_TLS_CLIENT  # verifies the certificate and the host name


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the contents of the element at ``at``."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        width = length & 0x7F
        length = int.from_bytes(der[start : start + width], "big")
        start += width
    if start + length > len(der):
        raise ValueError("truncated certificate")
    return tag, start, start + length


def _time(der: bytes, at: int) -> tuple[datetime, int]:
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:  # two-digit years: 50 and later are the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), end


def validity(der: bytes) -> tuple[datetime, datetime]:
    """First and last instant of a certificate. Raises ``ValueError``: ``der`` is none."""
    try:
        _, start, _ = _element(der, 0)
        _, at, _ = _element(der, start)
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _ in ("serial", "algorithm", "issuer"):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)
        begins, at = _time(der, at)
        ends, _ = _time(der, at)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error
    return begins, ends


def expiries_s(paths: Iterable[Path | None]) -> dict[str, int]:
    """When certificates end, in seconds since 1970, by file. Raises as ``client_context``."""
    return {str(path): int(_validity_of(path)[1].timestamp()) for path in paths if path}


def _check_dates(path: Path, now: datetime) -> None:
    begins, ends = _validity_of(path)
    if now > ends:
        raise ValueError(f"{path} expired on {ends:%Y-%m-%d}: renew it")
    if now < begins:
        raise ValueError(f"{path} is valid from {begins:%Y-%m-%d} only: check the clock")


def _validity_of(path: Path) -> tuple[datetime, datetime]:
    """First and last instant of the first certificate in a PEM file."""
    pem = path.read_text("ascii", errors="replace")
    blocks = [_PEM_BEGIN + rest.split(_PEM_END)[0] + _PEM_END for rest in pem.split(_PEM_BEGIN)[1:]]
    if not blocks:
        raise ValueError(f"{path} holds no PEM certificate: name a file with BEGIN CERTIFICATE")
    try:
        return validity(ssl.PEM_cert_to_DER_cert(blocks[0]))
    except ValueError:
        raise ValueError(f"{path} is not a valid certificate: write it again") from None


def client_context(
    *, ca_file: Path | None, cert_file: Path | None, key_file: Path | None, now: datetime
) -> ssl.SSLContext:
    """A context that verifies the broker and its host name, and presents ``cert_file``.

    Raises ``ValueError`` about an unusable file, ``what: how to mend``; and ``OSError``.
    """
    _check_files(ca_file, cert_file, key_file)
    context = ssl.create_default_context() if ca_file is None else ssl.SSLContext(_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        _load_authorities(context, ca_file, now)
    if cert_file is not None and key_file is not None:
        _load_own(context, cert_file, key_file, now)
    return context


def server_context(
    *, cert_file: Path, key_file: Path, client_ca_file: Path | None, now: datetime
) -> ssl.SSLContext:
    """A context that presents ``cert_file`` and requires clients' certificates if a CA file is
    given."""
    _check_files(cert_file, key_file, client_ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, cert_file, key_file, now)
    if client_ca_file is not None:
        _load_authorities(context, client_ca_file, now)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_files(*paths: Path | None) -> None:
    for path in paths:
        if path is not None and path.stat().st_size > PEM_BYTES_MAX:
            raise ValueError(f"{path} exceeds {PEM_BYTES_MAX} bytes: name a PEM file")
        if path is not None and not path.is_file():  # reading a pipe could take for ever
            raise ValueError(f"{path} is not a file: correct the path")


def _load_authorities(context: ssl.SSLContext, ca_file: Path, now: datetime) -> None:
    _check_dates(ca_file, now)
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError:
        raise ValueError(f"{ca_file} is not a valid certificate: write it again") from None


def _load_own(context: ssl.SSLContext, cert_file: Path, key_file: Path, now: datetime) -> None:
    _check_dates(cert_file, now)
    try:
        # An empty password: an encrypted key is an error, not a question on the terminal.
        context.load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"{key_file} is not the key of {cert_file}"
            raise ValueError(f"{what}: name the key it was made with") from None
        raise ValueError(f"{key_file} is not a usable key: give an unencrypted PEM key") from None
