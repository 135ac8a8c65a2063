"""Where Mosquitto's tests come from: Debian's source package, by apt, or a copy that is given.

Nothing of them is part of this project. Apt is asked with lists of its own in a temporary folder,
made from the archives that the system names already, so nothing of the system is changed. What it
brings is known by its SHA-256 and kept, so that the next run needs no network.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Final

from federator.errors import ConfigError

VERSION: Final = "2.0.11"
ARCHIVE: Final = f"mosquitto_{VERSION}.orig.tar.gz"
SHA256: Final = "7b36a7198bce85cf31b132f5c6ee36dcf5dadf86fb768501eb1e11ce95d4f78a"

APT_S: Final = 300.0
TESTS_BYTES_MAX: Final = 50_000_000
"""What the tests may have unpacked; they have 1 MB."""

_INDEXES: Final = ("apt-get", "indextargets", "Created-By: Packages", "--format")


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "federator"


def fetch(cache: Path) -> Path:
    """The archive of Mosquitto's sources, from ``cache`` or else by apt into it.

    Raises:
        ConfigError: It cannot be had; the text says what is missing.
    """
    kept = cache / ARCHIVE
    if kept.is_file() and _digest(kept) == SHA256:
        return kept
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mosquitto-", dir=cache) as folder:
            found = _ask_apt(Path(folder))
            if (digest := _digest(found)) != SHA256:
                raise _missing(f"{ARCHIVE} has the SHA-256 {digest}, {SHA256} is wanted")
            found.replace(kept)
    except OSError as error:
        raise _missing(f"{cache}: {error.strerror or error}") from error
    return kept


def unpack(source: Path, into: Path) -> Path:
    """Copy the folder ``test`` of ``source``, an archive or a checkout; return the copy.

    Raises:
        ConfigError: It has none, or cannot be read.
    """
    target = into / "test"
    try:
        if source.is_dir():
            shutil.copytree(source / "test", target)
        else:
            _extract(source, into)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise _missing(f"{source}: {error}") from error
    if not (target / "broker" / "test.py").is_file():
        raise _missing(f"{source}: holds no test/broker/test.py of Mosquitto {VERSION}")
    return target


def _extract(archive: Path, into: Path) -> None:
    """Extract the tests: folders and files below ``test/``, nothing that leads elsewhere.

    The filter of ``extractall`` that would see to it came with Python 3.11.4.
    """
    with tarfile.open(archive) as tar:
        members = []
        for member in tar:
            _, _, member.name = member.name.partition("/")  # below mosquitto-VERSION/
            leads_out = ".." in Path(member.name).parts or not (member.isdir() or member.isreg())
            if member.name.startswith("test/") and not leads_out:
                members.append(member)
        if sum(member.size for member in members) > TESTS_BYTES_MAX:
            raise _missing(f"{archive}: tests of over {TESTS_BYTES_MAX} bytes")
        for member in members:
            if member.isdir():
                (into / member.name).mkdir(parents=True, exist_ok=True)
                continue
            path = into / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            found = tar.extractfile(member)
            assert found is not None, "a file"
            with found, path.open("wb") as file:
                shutil.copyfileobj(found, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _ask_apt(folder: Path) -> Path:
    """Have apt bring the archive into ``folder``, with sources and lists of its own there."""
    if shutil.which("apt-get") is None:
        raise _missing("no apt-get here")
    form = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)|$(ORIGIN)"
    told = _run([*_INDEXES, form], folder).splitlines()
    lines = {line for line, _, origin in (each.partition("|") for each in told) if origin}
    names = sorted(line for line in lines if line.endswith(" main"))
    if not names:
        raise _missing("apt knows no package archive")
    (folder / "sources.list").write_text("\n".join(names) + "\n", encoding="utf-8")
    (folder / "lists" / "partial").mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder,
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", *(f"-o{key}={value}" for key, value in options.items())]
    _run([*apt, "update"], folder)
    _run([*apt, "source", "--download-only", "--tar-only", "mosquitto"], folder)
    found = folder / ARCHIVE
    if not found.is_file():
        other = ", ".join(each.name for each in folder.glob("mosquitto_*")) or "nothing"
        raise _missing(f"the package archive has {other}, {ARCHIVE} is wanted")
    return found


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=APT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "no word").splitlines()[-1]
        raise _missing(f"apt-get: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(f"apt-get: {error}") from error
    return done.stdout


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _missing(what: str) -> ConfigError:
    text = f"Mosquitto's tests: {what}: give a checkout or an archive of v{VERSION} with --source"
    return ConfigError(text, exit_code=os.EX_UNAVAILABLE)
