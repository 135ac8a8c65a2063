"""``federator-analytics report``: metrics files to the page, and the dashboard over its tables."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lab.console.browser import PATIENCE_MS
from tests.analytics.chromium import chromium, opened, served
from tests.analytics.example_tables import HOSTILE
from tests.analytics.landing import example, land, record, text
from tests.analytics.programs import run

SHELL = Path(__file__).with_name("report_shell.py")
PATIENT_S = 600


@pytest.fixture(scope="module")
def report():
    """Runs ``report`` and gives exit code, stdout and stderr; one Java for the whole file."""
    process = subprocess.Popen(
        [sys.executable, str(SHELL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def run(*arguments):
        told = ["report", *map(str, arguments), "--master", "local[2]"]
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield run
    process.stdin.close()
    process.wait(timeout=120)
    process.stdout.close()


def quiet(seconds):
    """The example's records of so many seconds, without its events."""
    told = example(seconds=seconds)
    return {b: [one for one in rows if one["table"] != "events"] for b, rows in told.items()}


def happened(broker, batch, kind, **values):
    return record("events", broker, batch=batch, row=0, window_ms=0, kind=kind, **values)


@pytest.fixture(scope="module")
def landed(report, tmp_path_factory):
    """A folder with records (``in``), their report (``out``), and what the verb said."""
    home = tmp_path_factory.mktemp("landed")
    told = quiet(5)
    told[1].append(happened(1, 9, "core_changed", filter=HOSTILE, subject=1))
    land(home / "in", told)
    (home / "in" / "bad.jsonl").write_text('{"v":1,"table":"li')
    return home, report(home / "in", "--out", home / "out")


@pytest.mark.timeout(PATIENT_S)
def test_a_landing_folder_becomes_tables_a_page_and_five_lines(landed):
    home, (code, out, err) = landed

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == str(home / "out" / "report.html")
    assert [line.split()[0] for line in lines[1:]] == [
        "health", "delay", "overhead", "loss", "span",
    ]  # fmt: skip
    summary = json.loads((home / "out" / "summary.json").read_text())
    assert summary["span"]["brokers"] == 3
    assert summary["delay"]["publications"] == 40
    assert summary["quality"]["quarantined_by_reason"] == {"truncated": 1}
    page = (home / "out" / "report.html").read_text()
    assert "<script>alert" not in page
    assert "Federation example" in page


@pytest.mark.timeout(PATIENT_S)
def test_one_record_of_one_broker_is_a_report(report, tmp_path):
    one = [each for each in quiet(1)[2] if each["table"] == "agents"]
    land(tmp_path / "in", {2: one})

    code, out, err = report(tmp_path / "in", "--out", tmp_path / "out", "--json")

    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["span"]["records"] == summary["span"]["brokers"] == 1
    assert summary["verdict"] == "healthy"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "No publication crossed from broker to broker." in page


@pytest.mark.timeout(PATIENT_S)
def test_input_without_a_usable_record_is_said_with_its_reason(report, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "1-a-1-1.jsonl").write_text(text([{"v": 9, "table": "links"}]))

    code, out, err = report(tmp_path / "bad", "--out", tmp_path / "out")

    assert (code, out) == (65, "")
    assert "no usable record: one record in quarantine, mostly: unknown version" in err
    assert err.count("\n") == 1
    assert "no record was read" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.timeout(PATIENT_S)
@pytest.mark.parametrize("option", ["INPUT", "--out"])
@pytest.mark.parametrize("url", ["s3a://bucket/metrics", "gs://bucket/metrics"])
def test_a_url_without_its_connector_is_one_line_and_nothing_is_written(
    report, tmp_path, option, url
):
    land(tmp_path / "in", quiet(1))
    source, out = (url, tmp_path / "out") if option == "INPUT" else (tmp_path / "in", url)

    code, said, err = report(source, "--out", out, "--page", tmp_path / "page")

    scheme = url.partition("://")[0]
    assert (code, said, err.count("\n")) == (69, "", 1)
    assert f"{option} {url}: Spark has no connector for {scheme}://: name it with" in err
    assert not (tmp_path / "page").exists()
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.timeout(PATIENT_S)
@pytest.mark.full
def test_the_dashboard_follows_a_death_that_the_job_finds_in_new_records(report, landed):
    home, _ = landed

    with chromium() as browser, served(home / "out") as (url, _), opened(browser, url) as page:
        broker = page.locator("svg.topology g.broker", has_text="broker 3:")
        expect(broker).to_have_class("broker up", timeout=PATIENCE_MS)
        assert page.locator("main script").count() == 0

        land(home / "in", {2: [happened(2, 20, "link_down", neighbour=3)]})
        assert report(home / "in", "--out", home / "out")[0] == 0

        expect(broker).to_have_class("broker down", timeout=PATIENCE_MS)
        expect(page.locator("[data-live=summary]")).to_contain_text("Broker 3 is down.")


def test_what_is_wrong_with_the_call_is_said_before_spark_starts(tmp_path):
    (tmp_path / "file").write_text("")
    here = tmp_path / "in"
    here.mkdir()

    report = partial(run, "report")
    empty = report(here, "--out", tmp_path / "out")
    (here / "a.jsonl").write_text("")
    no_folder = report(tmp_path / "none", "--out", tmp_path / "out")
    no_java = report(here, "--out", tmp_path / "out", JAVA_HOME=str(tmp_path))
    on_file = report(here, "--out", tmp_path / "file")
    remote = report(here, "--out", "s3a://bucket/out")
    no_out = report(here)

    told = [each.returncode for each in (no_folder, no_java, on_file, remote, no_out, empty)]
    assert told == [66, 69, 64, 64, 64, 65]
    assert "none: no such file or folder" in no_folder.stderr
    assert "in: no record: metrics files" in empty.stderr
    assert "no Java" in no_java.stderr
    assert "file: is a file" in on_file.stderr
    assert "name its folder by --page" in remote.stderr
    assert not (tmp_path / "out").exists()
