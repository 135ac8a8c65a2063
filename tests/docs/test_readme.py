"""Two own brokers that federate with keys, by the README alone: its commands, as printed.

Two hosts on this machine. Each has a root folder laid over this machine's, so that what is
installed and configured stays there, processes of its own, and a network with the other one; the
first step, which installs from registries, has this machine's network. They have no service
manager: where the README asks it to start or reload the broker, what Debian's unit says is done.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.readme import ROOT, follow_readme

SITES = {"site-1": "10.79.0.1", "site-2": "10.79.0.2"}
STEP_S = 300

HOST = """
mount -t tmpfs here {here}
mkdir {here}/upper {here}/work {here}/root
mount -t overlay overlay -o lowerdir=/,upperdir={here}/upper,workdir={here}/work {here}/root
cd {here}/root
rm -rf etc/federator opt/federator usr/local/bin/federator var/lib/federator clone
rm -rf etc/mosquitto/conf.d/* var/lib/mosquitto/*
mkdir clone
tar -C {root} --exclude=./.venv --exclude=./.git --exclude=./build -cf - . | tar -C clone -xf -
mount -t proc proc proc
mount --bind /dev dev
mount -t tmpfs tmp tmp
mount -t tmpfs run run
mkdir -p run/mosquitto && chown mosquitto run/mosquitto
cat /etc/resolv.conf >resolv && rm -f etc/resolv.conf && mv resolv etc/resolv.conf
printf '10.79.0.1 site-1\\n10.79.0.2 site-2\\n' >>etc/hosts
echo made
exec sleep infinity
"""


MANAGED = {
    "systemctl restart mosquitto": "mosquitto -c /etc/mosquitto/mosquitto.conf >/dev/null 2>&1 &\n"
    "until mosquitto_pub -t started -n 2>/dev/null; do sleep 0.1; done",
    "systemctl reload mosquitto": "kill -HUP $(pidof mosquitto)",
}


class Host:
    """One of the two, until the context ends; nothing of it is left then."""

    def __init__(self, name, folder):
        self.name, self._net = name, f"fed-{os.getpid()}-{name}"
        self._here = folder / name
        self._here.mkdir()

    def __enter__(self):
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc"]
        script = HOST.format(here=self._here, root=ROOT)
        self._held = subprocess.Popen([*apart, script], stdout=subprocess.PIPE, text=True)
        assert self._held.stdout.readline() == "made\n"
        task = Path(f"/proc/{self._held.pid}/task/{self._held.pid}/children")
        self._inside = ["nsenter", "--target", task.read_text().strip(), "--mount", "--pid"]
        self._inside += ["chroot", self._here / "root", "env", "-i", "HOME=/root"]
        self._inside += ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        self._inside += ["DEBIAN_FRONTEND=noninteractive", "bash", "-c"]
        subprocess.run(["ip", "netns", "add", self._net], check=True)
        self.run("ip link set lo up")
        return self

    def __exit__(self, *error):
        self._held.kill()
        self._held.wait()
        self._held.stdout.close()
        subprocess.run(["ip", "netns", "del", self._net], check=False)

    def run(self, commands, *, outside=False):
        """What ``commands`` print, in the folder of the clone; ``outside``: by our network."""
        net = [] if outside else ["ip", "netns", "exec", self._net]
        with (self._here.parent / f"{self.name}.printed").open(
            "w+"
        ) as printed:  # jobs keep it open
            for asked, done in MANAGED.items():
                commands = commands.replace(asked, done)
            command = [*net, *self._inside, f"cd /clone\n{commands}"]
            both = {"stdout": printed, "stderr": printed}
            subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=STEP_S, **both)
            printed.seek(0)
            return printed.read()

    def connect(self, other):
        """Lay a cable to the other host."""
        cable = ["ip", "link", "add", "eth0", "netns", self._net, "type", "veth"]
        subprocess.run([*cable, "peer", "name", "eth0", "netns", other._net], check=True)
        for host in (self, other):
            host.run(f"ip addr add {SITES[host.name]}/24 dev eth0; ip link set eth0 up")


@pytest.mark.slow
def test_by_the_readme_alone_two_own_brokers_federate_with_keys(tmp_path):
    with Host("site-1", tmp_path) as one, Host("site-2", tmp_path) as two:
        one.connect(two)
        follow_readme(one, two)
