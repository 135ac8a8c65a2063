"""What the chart renders, run on loopback: three brokers with keys and passwords, and the rest."""

import asyncio
import contextlib
import subprocess

import pytest

from federator.errors import LinkError
from tests.helm.chart import ALL_ON, render
from tests.helm.office import certificates, made_by_hand
from tests.helm.pods import Cluster, programs
from tests.real.polling import until

CASES = {
    "signed": ALL_ON,
    "tls": ALL_ON | {"tls": {"secret": "certificates"}, "security": "sealed"},
}
TOPIC = "hall/temperature"


class Clients:
    """Mosquitto's own, as the user of values.yaml."""

    def __init__(self, cluster, folder):
        secret = cluster.secrets["fed-federator-logins"]["client-client"].decode()
        self.login = ("-u", "client", "-P", secret)
        self.tls = ()
        if "certificates" in cluster.secrets:
            (folder / "ca.crt").write_bytes(cluster.secrets["certificates"]["ca.crt"])
            self.tls = ("--cafile", str(folder / "ca.crt"))

    def publish(self, pod, *words, login=True):
        options = ["-h", "127.0.0.1", "-p", str(pod.mqtt), *self.tls]
        command = ["mosquitto_pub", *options, *(self.login if login else ()), *words]
        return subprocess.run(command, env=programs(), capture_output=True, text=True, check=False)

    async def first_heard(self, pod, *, publish):
        """The first publication that a subscriber at ``pod`` gets while ``publish`` is called."""
        options = ["-h", "127.0.0.1", "-p", str(pod.mqtt), *self.tls, *self.login]
        process = await asyncio.create_subprocess_exec(
            *("mosquitto_sub", *options, "-t", "hall/#", "-v", "-C", "1", "-W", "60"),
            env=programs(),
            stdout=asyncio.subprocess.PIPE,
        )
        hearing = asyncio.create_task(process.communicate())
        while not hearing.done():
            assert publish().returncode == 0
            await asyncio.wait([hearing], timeout=0.2)
        printed, _ = hearing.result()
        return printed.decode().strip()


@pytest.mark.slow
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
async def test_three_brokers_act_as_one_and_all_others_are_ready(values, tmp_path):
    secrets = made_by_hand(tmp_path, values)
    if "tls" in values:
        secrets["certificates"] = certificates(tmp_path)
    cluster = Cluster(tmp_path / "pods", render(values), secrets)
    for pod in cluster.pods:
        pod.lay_out()
        done = pod.check()
        assert done.returncode == 0, f"{pod.name}: {done.stderr}"
    for pod in cluster.brokers.values():
        pod.initialise()
    clients = Clients(cluster, tmp_path)
    one, _, three = cluster.brokers.values()

    async with contextlib.AsyncExitStack() as stack:
        for pod in cluster.pods:
            for process in pod.processes():
                await stack.enter_async_context(process)
        for pod in cluster.pods:
            await until(lambda pod=pod: is_ready(pod), f"{pod.name} is ready")

        def at_one():
            return clients.publish(one, "-t", TOPIC, "-m", "19.0", "-q", "1")

        def at_three():
            return clients.publish(three, "-t", TOPIC, "-m", "20.5", "-q", "1")

        west = cluster.others["fed-federator-gateway-west"]
        assert await clients.first_heard(three, publish=at_one) == f"{TOPIC} 19.0"
        assert await clients.first_heard(one, publish=at_three) == f"{TOPIC} 20.5"
        assert await clients.first_heard(west, publish=at_one) == f"{TOPIC} 19.0"
        assert clients.publish(one, "-t", TOPIC, "-m", "x", login=False).returncode != 0
        forged = clients.publish(one, "-V", "5", "-q", "1", "-t", "$fed/fed/hello", "-m", "x")
        assert "Not authorized" in forged.stdout + forged.stderr
        drained = drain(one, 3, tmp_path)
        assert drained.returncode == 0, drained.stderr


async def is_ready(pod):
    try:
        return await pod.answers("readinessProbe")
    except (OSError, LinkError):
        return False


def drain(pod, broker, folder):
    """As the page has it: an operator's key, issued where the federation's is, at any agent."""
    issue = ("federator", "keys", "issue", "--dir", "office", "--role", "operator", "--name", "ops")
    subprocess.run(issue, cwd=folder, env=programs(), check=True, capture_output=True)
    config = pod.daemon()[-2:]
    command = ["federator", "drain", str(broker), "--key", "office/operator-ops.key", *config]
    return subprocess.run(
        command, cwd=folder, env=programs(), capture_output=True, text=True, check=False
    )
