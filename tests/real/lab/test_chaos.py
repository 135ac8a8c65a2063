"""``federator-lab chaos`` end to end: it finds what is planted, and with custody nothing else."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.client import Client
from tests.real.polling import until

CHAOS = (sys.executable, "-m", "lab", "chaos")
SMALL = ("--rows", "1", "--columns", "3", "--rate", "200", "--sys-interval-s", "1")
DEADLINE_S = 240.0


def chaos(*arguments):
    """Run it to its end: exit code, and all that was printed."""
    done = subprocess.run(
        [*CHAOS, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def running_chaos(told, *arguments):
    """A run under way, killed when the test is done with it."""
    with told.open("wb") as output:
        process = subprocess.Popen([*CHAOS, *SMALL, *arguments], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_a_brokers_full_queue_drops_is_told_with_seed_schedule_and_place(tmp_path):
    report, kept = tmp_path / "chaos.json", tmp_path / "kept"
    queue = ("--rate", "400", "--broker-queue", "100", "--recovery-timeout-s", "3", "--fail-fast")
    files = ("--json", str(report), "--keep", str(kept))

    code, said = chaos(*SMALL, "--seed", "5", *queue, *files, "--faults", "agent-kill-origin")

    found = json.loads(report.read_text())
    assert code == 1, said
    assert found["classes"]["agent-kill-origin"]["lost"] > 10
    assert "seed 5" in said
    assert re.search(r"lost +\S+ +chaos/\d/\w+ #\d+ +\[agent-kill-origin\]", said)
    assert "agent-kill-origin agent" in said
    assert str(kept) in said
    assert all((kept / f"agent-{i}" / "federator.log").exists() for i in range(3))


@pytest.mark.full
def test_every_fault_is_felt_and_breaks_no_promise(tmp_path):
    """A round of the faults that take no more than seconds each; `script/chaos` has them all."""
    report, kept = tmp_path / "chaos.json", tmp_path / "kept"
    faults = [
        "none", "link-cut", "link-reset", "link-silence", "half-open", "link-delay", "partition",
        "broker-kill-relay", "broker-kill-destination", "broker-restart-saved",
        "agent-kill-origin", "agent-kill-destination", "agent-pause", "broker-pause", "mixed",
    ]  # fmt: skip
    square = (*SMALL, "--rows", "2", "--columns", "2", "--recovery-timeout-s", "60")
    spans = ("--rounds", "1", "--hold-s", "1", "--faults", ",".join(faults))

    code, said = chaos(*square, *spans, "--json", str(report), "--keep", str(kept))

    assert code == 0, said
    assert "every promise held" in said
    found = json.loads(report.read_text())
    assert found["held"]
    hurt = [each["phase"] for each in found["schedule"]]
    assert set(hurt) == set(faults)
    for each in found["schedule"]:
        if each["phase"] != "mixed":
            assert each["felt"] == [[each["phase"], True]], each
    assert found["never_felt"] == []
    assert found["classes"]["agent-kill-destination"]["slowest_s"] > 1
    for counts in found["classes"].values():
        assert counts["delivered"] + counts["spared_lost"] >= counts["owed"] > 0
    assert len(found["agents"]) == 4


@pytest.mark.full
def test_strangers_break_no_promise_of_a_signed_federation(tmp_path):
    report = tmp_path / "chaos.json"
    faults = [f"strangers-{name}" for name in ("repeat", "lie", "crowd", "groups", "retain")]
    spans = ("--rounds", "1", "--hold-s", "2", "--faults", ",".join(faults))

    code, said = chaos(*SMALL, "--signed", *spans, "--json", str(report))

    assert code == 0, said
    found = json.loads(report.read_text())
    assert {tuple(each["felt"][0]) for each in found["schedule"]} == {(f, True) for f in faults}
    assert found["never_felt"] == []


@pytest.mark.full
async def test_planted_copies_and_strangers_are_found(tmp_path):
    report, kept, told = tmp_path / "chaos.json", tmp_path / "kept", tmp_path / "told"
    options = ("--minutes", "0.2", "--faults", "none", "--json", str(report), "--keep", str(kept))
    with running_chaos(told, *options) as process:
        await until(lambda: "a quiet time" in told.read_text(), "it begins", deadline_s=DEADLINE_S)
        conf = (kept / "broker-0" / "mosquitto.conf").read_text()
        found = re.search(r"listener (\d+)", conf)
        assert found is not None
        client = Client(int(found[1]), "eavesdropper", "chaos/#")
        running = asyncio.create_task(client.link.run())

        await until(lambda: client.came, "a message is overheard")
        topic, payload = client.came[-1]
        assert client.link.publish(topic, payload, qos=1)
        assert client.link.publish(topic, b"not one of theirs", qos=1)
        await until(
            lambda: process.poll() is not None, "it comes to its end", deadline_s=DEADLINE_S
        )
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    counts = json.loads(report.read_text())["classes"]["none"]
    assert process.returncode == 1, told.read_text()
    assert counts["twice"] >= 1
    assert counts["unexpected"] >= 1
    assert counts["lost"] == 0


def test_one_broker_alone_is_hurt_by_its_clients_only(tmp_path):
    report = tmp_path / "chaos.json"
    faults = "publisher-burst,subscriber-pause,agent-kill-origin"
    spans = ("--rounds", "1", "--hold-s", "1", "--json", str(report))

    code, said = chaos(*SMALL, "--alone", "--qos", "mixed", "--faults", faults, *spans)

    assert code == 0, said
    found = json.loads(report.read_text())
    for kind in ("publisher-burst", "subscriber-pause"):
        counts = found["classes"][kind]
        assert 0 < 2 * counts["delivered_mixed"] == counts["delivered"] == counts["owed"]
    assert found["classes"]["subscriber-pause"]["slowest_s"] > 0.9
    assert found["never_felt"] == []
    assert found["skipped"] == {"agent-kill-origin": "no agents"}
    assert "to subscribers of QoS 2" in said
    assert found["agents"] == []


@pytest.mark.full
def test_kills_of_agents_change_no_order_of_mixed_qos(tmp_path):
    report = tmp_path / "chaos.json"
    faults = ("--faults", "agent-kill-origin,agent-kill-destination")
    spans = ("--rounds", "2", "--hold-s", "1", "--json", str(report))

    code, said = chaos(*SMALL, "--qos", "mixed", *faults, *spans)

    assert code == 0, said
    found = json.loads(report.read_text())
    for counts in found["classes"].values():
        assert counts["delivered_mixed"] > 0


async def test_a_stopped_run_leaves_no_process_behind(tmp_path):
    kept, told = tmp_path / "kept", tmp_path / "told"
    with running_chaos(told, "--keep", str(kept)) as process:
        log = kept / "broker-2" / "mosquitto.log"
        await until(log.exists, "brokers start", deadline_s=DEADLINE_S)
        process.terminate()
        await until(lambda: process.poll() is not None, "it ends", deadline_s=DEADLINE_S)

    assert process.returncode == 130
    await until(lambda: not users_of(kept), "its children end")


def users_of(folder):
    """Processes whose command line names a file of ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--faults", "meteor"), "meteor"),
        (("--rows", "1", "--columns", "1"), "at least 2"),
        (("--keep", "/proc"), "not empty"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, word):
    code, said = chaos(*arguments)

    assert code == 64
    assert word in said
    assert len(said.splitlines()) == 1


def test_the_list_names_every_class():
    code, said = chaos("--list")

    assert code == 0
    for name in ("link-cut", "half-open", "agent-kill-relay", "disk-full", "mixed"):
        assert name in said
