"""The section [opentelemetry]: which URL is meant, and what is said without the library."""

import subprocess
import sys

import pytest

from federator.config.opentelemetry import OpenTelemetrySettings, require_exporter, traces_url
from federator.errors import ConfigError

COLLECTOR = OpenTelemetrySettings(endpoint="http://127.0.0.1:4318")


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ("https://vendor/otlp", "https://vendor/otlp/v1/traces"),
    ],
)
def test_spans_are_posted_where_otlp_says(endpoint, url):
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "collector:4318", "http://", "http://h:0", "http://h:70000", "grpc://h"),
        *("http://h/?a=1", "http://h h", "http://h\n", "http://" + "h" * 600, "http://me:secret@h"),
    ],
)
def test_what_is_no_collectors_url_is_refused_without_telling_a_secret(endpoint):
    with pytest.raises(ValueError, match=": ") as refused:
        traces_url(endpoint)

    assert "secret" not in str(refused.value)


def test_it_is_off_until_a_collector_is_named_and_with_a_share_of_none():
    assert not OpenTelemetrySettings().reports
    assert not OpenTelemetrySettings(endpoint="http://h", sample=0).reports
    assert COLLECTOR.reports


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    require_exporter(COLLECTOR, "f.toml")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    require_exporter(OpenTelemetrySettings(), "f.toml")

    with pytest.raises(ConfigError, match=r"^f\.toml: opentelemetry\.endpoint needs .*extra otel"):
        require_exporter(COLLECTOR, "f.toml")


def test_without_the_library_the_verb_says_which_extra_brings_it(tmp_path):
    config = tmp_path / "f.toml"
    config.write_text('security = "open"\n[broker]\nid = 1\nurl = "mqtt://127.0.0.1:1"\n')
    program = (
        "import sys; sys.modules['opentelemetry'] = None; from federator.cli import main; "
        f"main(['trace', 'a', '-c', {str(config)!r}, '--otlp', 'http://127.0.0.1:1'])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "opentelemetry is not installed: run pip install '" in done.stderr
    assert "[otel]'" in done.stderr
