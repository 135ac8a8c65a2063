"""``federator top``: rates from two snapshots, and a picture that fits and says what hinders."""

import io
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from rich.console import Console

from federator.cli.observe.top import amount, bar, command, curve, picture, size
from federator.cli.observe.top_samples import Snapshot, Watched
from federator.errors import ConfigError, LinkError

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def snapshot(at_s, id=1, *, ready=True, links=(), meshes=(), delays=(), more=None, **data):
    """What an agent says, with these counters of publications."""
    status = {
        "id": id,
        "federation": "fed",
        "ready": ready,
        "ready_reason": "" if ready else "broker mqtt://b: connection refused",
        "links": list(links),
        "meshes": list(meshes),
        "counters": {"data": data},
        "delays": {"seconds": {"bounds": [0.01, 0.02], "counts": list(delays)}},
    }
    return Snapshot.of(at_s, status | (more or {}))


def link(neighbour, state="up", reason=""):
    return {"neighbour": neighbour, "state": state, "rtt_ms": 3, "cost": 1, "reason": reason}


def watched(*snapshots):
    made = Watched("http://127.0.0.1:9883")
    for each in snapshots:
        made.take(each)
    return made


def drawn(*agents, width=140, height=40):
    console = Console(width=width, height=height, file=io.StringIO())
    console.print(picture(agents, AT, height=height, width=width))
    return console.file.getvalue()


def test_rates_are_growth_over_the_time_that_passed():
    agent = watched(snapshot(10.0, publications_in=100), snapshot(12.5, publications_in=150))

    assert agent.rate("counters.data.publications_in") == pytest.approx(20)
    assert list(agent.published) == [pytest.approx(20)]


def test_an_agent_that_restarted_counts_from_zero():
    agent = watched(snapshot(10.0, publications_in=100), snapshot(11.0, publications_in=7))

    assert agent.rate("counters.data.publications_in") == pytest.approx(7)


def test_there_is_no_rate_before_the_second_snapshot_nor_after_silence():
    agent = watched(snapshot(10.0, publications_in=100))
    assert agent.rate("counters.data.publications_in") is None

    agent.take(snapshot(11.0, publications_in=100))
    agent.miss("timed out")

    assert agent.rate("counters.data.publications_in") is None
    assert agent.name == "1"  # known from before


def test_delays_are_those_of_the_frames_between_two_snapshots():
    before, after = [1000, 0, 0], [1000, 100, 0]
    agent = watched(snapshot(1.0, delays=before), snapshot(2.0, delays=after))

    assert agent.delay_s(0.5) == pytest.approx(0.015)
    assert watched(snapshot(1.0, delays=before), snapshot(2.0, delays=before)).delay_s(0.5) is None


def test_what_hinders_is_said_and_links_that_are_down_come_first():
    well = watched(
        *(snapshot(t, 1, links=[link(2), link(3, "down", "silent")]) for t in (1.0, 2.0))
    )
    ill = watched(snapshot(1.0, 3, ready=False))
    gone = Watched("http://127.0.0.1:9")
    gone.miss("http://127.0.0.1:9: connection refused")

    text = drawn(well, ill, gone)

    assert "1 of 3 ready" in text
    assert "broker 3: broker mqtt://b: connection refused" in text
    assert "http://127.0.0.1:9: connection refused" in text
    assert text.index("1 → 3") < text.index("1 → 2")
    assert "silent" in text


def test_meshes_tell_who_has_clients_and_who_carries():
    def mesh(local, member):
        return {"filter": "a/\x1b[2J#", "core": 1, "local": local, "member": member}

    text = drawn(
        watched(snapshot(1.0, 1, meshes=[mesh(True, True)])),
        watched(snapshot(1.0, 2, meshes=[mesh(False, True)])),
        watched(snapshot(1.0, 3, meshes=[mesh(False, False)])),
    )

    row = next(line for line in text.splitlines() if "[2J#" in line)
    assert row.split()[-4:] == ["1", "1", "1", "2"]
    assert "\x1b" not in row


@pytest.mark.parametrize("width", [80, 100, 140])
def test_it_fits_a_terminal_whatever_there_is(width):
    links = [link(n) for n in range(2, 60)]
    meshes = [{"filter": f"a/{n}", "core": 1, "member": True} for n in range(500)]
    agents = [
        watched(*(snapshot(t, id, links=links, meshes=meshes) for t in (1, 2))) for id in (1, 2)
    ]

    lines = drawn(*agents, width=width, height=40).splitlines()

    assert len(lines) <= 42
    assert max(map(len, lines)) <= width
    assert any("more" in line for line in lines)


def test_figures_are_short():
    assert [amount(v) for v in (None, 0, 1.25, 99.96, 1234.4, 56_789, 3.2e6)] == [
        *("-", "0", "1.2", "100", "1234", "56.8k", "3.2M")
    ]
    assert [size(v) for v in (None, 0, 2047, 5 * 2**20, 3 * 2**30)] == [
        *("-", "0 B", "2 KiB", "5 MiB", "3.0 GiB")
    ]
    assert curve([0, 5, 10]) == " ▄█"
    assert curve([0, 0]) == "▁▁"
    assert [bar(s).plain.count("━") for s in (-1, 0, 0.5, 1, 7)] == [0, 0, 4, 8, 8]


def test_nobody_answering_is_one_line():
    result = CliRunner().invoke(
        command, ["--url", "http://127.0.0.1:9", "--once", "--every", "0.2"]
    )

    assert isinstance(result.exception, LinkError)
    assert "refused" in str(result.exception)


@pytest.mark.parametrize(
    ("text", "code"), [(None, 66), ("{}", 78), ("[", 78), ('{"brokers": [1]}', 78)]
)
def test_a_file_that_is_no_grid_is_named(tmp_path, text, code):
    file = tmp_path / "grid.json"
    if text is not None:
        file.write_text(text)

    result = CliRunner().invoke(command, ["--state", str(file), "--once"])

    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == code
    assert str(file) in str(result.exception)


def test_the_fullest_link_comes_first_with_its_load_and_the_heaviest_flow_with_its_error():
    narrow = link(2) | {"rate": 1_900_000, "capacity": 2_000_000, "load": 0.95}
    wide = link(3) | {"rate": 9_000_000, "capacity": 1_000_000_000, "load": 0.009}
    flows = [
        {"filters": [f"{name}/#"], "destinations": [2, 3], "rate": rate, "error": 5_000}
        for name, rate in (("light", 40_000), ("heavy\x1b", 1_300_000))
    ]
    made = snapshot(1.0, 1, links=[wide, narrow], more={"flows": {"heaviest": flows}})

    text = drawn(watched(made))

    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if "1 → 2" in line)
    assert "95 % of 2 Mbit/s" in lines[first]
    assert "0.9" not in lines[first + 1]
    assert "1 % of 1 Gbit/s" in lines[first + 1]
    flow = next(at for at, line in enumerate(lines) if "heavy" in line)
    assert lines[flow].split() == [
        *("'heavy\\x1b/#'", "1", "2", "3"),
        "1.3",
        "Mbit/s",
        "5",
        "kbit/s",
        "-",
    ]
    assert "light/#" in lines[flow + 1]
    assert "load" not in drawn(watched(snapshot(1.0, links=[link(2)])))
