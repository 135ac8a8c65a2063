"""Bare systems, made from their distribution's packages by ``script/bare-root``, in containers."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
BOOT_S, STEP_S = 60, 900
NOT_COPIED = ("./.venv", "./.git", "./build", "./dist")
SHELL = (
    *("env", "-i", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"),
    *("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-c"),
)
NSPAWN = ["systemd-nspawn", "--quiet", "--register=no", "--timezone=off"]
if not Path("/run/systemd/system").exists():
    NSPAWN.append("--keep-unit")  # nobody here makes it one of its own


class Container:
    """A system out of ``tar`` in ``folder``, with a copy of the checkout in ``/clone``.

    It runs what it is told and nothing else, by this machine's network.
    """

    def __init__(self, tar: Path, folder: Path) -> None:
        self.root = folder
        folder.mkdir()
        _do("tar", "-C", folder, "-xf", tar)
        (folder / "clone").mkdir()
        left_out = [f"--exclude={each}" for each in NOT_COPIED]
        packed = subprocess.run(
            ["tar", "-C", ROOT, *left_out, "-cf", "-", "."], stdout=subprocess.PIPE, check=True
        )
        _do("tar", "-C", folder / "clone", "-xf", "-", input=packed.stdout)
        # As every engine of containers and every installer does, where the packages do not.
        (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")
        for file in ("/etc/resolv.conf", "/etc/pip.conf"):  # the network's, not the system's
            if Path(file).exists():
                (folder / file[1:]).unlink(missing_ok=True)
                (folder / file[1:]).write_text(Path(file).read_text())

    def start(self, commands: str) -> "subprocess.Popen[str]":
        """Begin ``commands`` in the folder of the clone; errors go where output goes."""
        inside = ("--pipe", "--as-pid2", "--directory", str(self.root))
        on_disk = os.environ | {"SYSTEMD_NSPAWN_TMPFS_TMP": "0"}  # /tmp, where pip builds
        return subprocess.Popen(
            [*NSPAWN, *inside, *SHELL, f"cd /clone\n{commands}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=on_disk,
        )

    def done(self, commands: str) -> str:
        """What ``commands`` print; they must succeed."""
        with self.start(commands) as process:
            printed, _ = process.communicate(timeout=STEP_S)
        assert process.returncode == 0, printed
        return printed


class Machine:
    """A container whose own service manager runs, with a network of its own; a ``Host``."""

    def __init__(self, name: str, container: Container, hosts: dict[str, str]) -> None:
        self.name, self._container, self._hosts = name, container, hosts
        self._net = f"bare-{os.getpid()}-{name}"

    def __enter__(self) -> Self:
        # What the distribution's installer puts on every machine; a reload is by procps' kill.
        packages = "systemd-sysv procps"
        self._container.done(
            f"apt-get -q update && apt-get -qqy install --no-install-recommends {packages}"
        )
        known = "".join(f"{address} {name}\n" for name, address in self._hosts.items())
        (self._container.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{known}")
        _do("ip", "netns", "add", self._net)
        _do("ip", "-n", self._net, "link", "set", "lo", "up")
        net = f"--network-namespace-path=/run/netns/{self._net}"
        boot = (*NSPAWN, "--boot", "--console=pipe", net, "--directory", self._container.root)
        self._nspawn = subprocess.Popen(
            boot, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end_s = time.monotonic() + BOOT_S
        while self.run("systemctl is-active multi-user.target") != "active\n":
            assert time.monotonic() < end_s, self.run("systemctl list-jobs; journalctl -n 40")
            time.sleep(0.2)
        return self

    def __exit__(self, *error: object) -> None:
        self._nspawn.send_signal(signal.SIGTERM)
        self._nspawn.wait()
        _do("ip", "netns", "del", self._net)

    def run(self, commands: str, *, outside: bool = False) -> str:
        """What ``commands`` print, in the folder of the clone; ``outside``: by our network."""
        first = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text()
        if not first:
            return ""
        inside = ["nsenter", "--target", first.split()[0], "--mount", "--uts", "--ipc", "--pid"]
        if not outside:
            inside.append("--net")
        printed = self._container.root / "printed"
        with printed.open("w") as file:  # not a pipe: jobs keep it open
            command = [*inside, "--root", "--wd", *SHELL, f"cd /clone\n{commands}"]
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
                timeout=STEP_S,
            )
        return printed.read_text()

    def connect(self, other: "Machine") -> None:
        """Lay a cable to ``other``."""
        end = ("name", "eth0", "netns")
        cable = ("type", "veth", "peer", *end, other._net)
        _do("ip", "link", "add", *end, self._net, *cable)
        for each in (self, other):
            address = f"{self._hosts[each.name]}/24"
            _do("ip", "-n", each._net, "addr", "add", address, "dev", "eth0")
            _do("ip", "-n", each._net, "link", "set", "eth0", "up")


def _do(*command: str | Path, **how: object) -> None:
    subprocess.run(command, check=True, **how)  # type: ignore[call-overload]
