"""The page and the summary, made from example tables; no Spark session is needed."""

import html
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from analytics.digest.figures import SUMMARY_VERSION, summarise
from analytics.digest.tables import ROWS_MAX, Tables, read_tables
from analytics.errors import InputError
from analytics.report.page import page, summary_json
from analytics.schemas.reports import REPORT_TABLES
from tests.analytics.example_tables import HOSTILE, example, write_table, write_tables

MADE = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Elements(HTMLParser):
    """Tags with their attributes, and the texts between them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, example())
    tables = read_tables(folder)
    summary = summarise(tables, f"Title {HOSTILE}")
    return page(tables, summary, made_at=MADE), summary


def shown(tables):
    rows = Tables(tables)
    summary = summarise(rows, "Report")
    return page(rows, summary, made_at=MADE), summary


def test_the_page_asks_nothing_of_any_network(drawn):
    text, _ = drawn

    elements = Elements(text)

    kept = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= kept
    for tag, attributes in elements.tags:
        assert tag not in ("iframe", "img", "object", "embed", "base")
        for key in ("src", "href", "xlink:href", "action"):
            assert attributes.get(key, "#")[0] == "#" or attributes[key] == "data:,"
    assert "default-src 'none'" in text
    assert text.count("url(") == text.count("url(#")
    assert "@import" not in text


def test_what_clients_named_is_text_and_nothing_else(drawn):
    text, _ = drawn

    elements = Elements(text)

    assert [tag for tag, _ in elements.tags].count("script") == 1
    assert HOSTILE in html.unescape(text)
    assert HOSTILE not in text
    assert "<b>all</b>" not in text
    assert "<img" not in text
    assert "49" not in [part for part in re.findall(r"alert\(1\).{0,30}", text) if "{{" not in part]
    assert not [key for _, attributes in elements.tags for key in attributes if key[:2] == "on"]


def test_every_chapter_is_there_and_every_link_inside_leads_somewhere(drawn):
    text, _ = drawn

    elements = Elements(text)

    places = {attributes.get("id") for _, attributes in elements.tags}
    wanted = {attributes["href"][1:] for _, attributes in elements.tags if "href" in attributes}
    assert wanted - {"ata:,"} <= places
    assert places >= {
        "delay", "overhead", "loss", "convergence", "topology", "brokers", "traffic", "quality",
    }  # fmt: skip


def test_every_drawing_says_in_words_what_it_shows(drawn):
    text, _ = drawn

    drawings = [attributes for tag, attributes in Elements(text).tags if tag == "svg"]

    assert len(drawings) > 10
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)


def test_a_delay_that_cannot_be_believed_is_marked_and_left_out_of_the_worst(drawn):
    text, summary = drawn

    flagged = [
        row for row in example()["delay"] if row["scope"] == "pair" and row["quality"] == "flagged"
    ]

    assert len(re.findall(r'<td class="doubt"', text)) == len(flagged) == 1
    worst = [(row["origin"], row["destination"]) for row in summary["delay"]["slowest_pairs"]]
    assert (flagged[0]["origin"], flagged[0]["destination"]) not in worst
    assert summary["delay"]["pairs_by_quality"]["flagged"] == 1


def test_the_summary_says_first_what_is_worst(drawn):
    _, summary = drawn

    weights = [finding["weight"] for finding in summary["findings"]]
    texts = [finding["text"] for finding in summary["findings"]]

    assert summary["verdict"] == "unhealthy"
    assert weights == sorted(weights, key=["bad", "look", "note"].index)
    assert texts[0] == "Broker 9 is down."
    assert any("QoS 1 did not arrive" in text for text in texts[:2])


def test_the_summary_quotes_the_tables(drawn):
    _, summary = drawn
    (overall,) = [row for row in example()["delay"] if row["scope"] == "all"]

    assert summary["version"] == SUMMARY_VERSION
    assert summary["delay"]["delay_us_p99"] == overall["delay_us_p99"]
    assert summary["overhead"]["overall"]["control_messages_per_announcement"] == 21.6
    assert summary["loss"]["missing"] == sum(row["missing"] for row in example()["loss"])
    assert summary["load"]["dead"] == [9]
    assert summary["quality"]["quarantined"] == 15
    assert '"verdict": "unhealthy"' in summary_json(summary)


def test_a_federation_without_a_fault_is_healthy():
    tables = example() | {"quarantine_counts": [], "events": [], "convergence": []}
    tables["links"] = [row | {"up_share": 1.0} for row in tables["links"]]
    tables["span"] = [row | {"restarts": 0, "dropped_batches": 0} for row in tables["span"]]
    tables["loss"] = [row | {"missing": 0} for row in tables["loss"]]
    tables["delay"] = [row | {"quality": "ok"} for row in tables["delay"]]
    filled = {
        name: [dict.fromkeys(REPORT_TABLES[name].names) | row for row in rows]
        for name, rows in tables.items()
    }

    text, summary = shown(filled)

    assert summary["verdict"] == "healthy"
    assert "Healthy: nothing was lost" in text


def test_no_record_at_all_is_said_and_nothing_is_drawn():
    text, summary = shown({})

    assert summary["verdict"] == "unknown"
    assert "no record was read" in text
    assert "<svg" not in text


def test_a_chapter_without_rows_says_so():
    text, _ = shown({"span": example()["span"]})

    assert text.count('<section id="') == 9
    assert text.count('<p class="absent">') == 7  # the last chapter always has something to say


def test_one_broker_alone_is_a_report(tmp_path):
    tables = example()
    alone = {name: tables[name][:1] for name in ("span", "brokers")}
    write_tables(tmp_path, alone | {"events": tables["events"][:1]})

    text, summary = shown(read_tables(tmp_path).rows)

    assert summary["load"]["brokers"] == 1
    assert summary["load"]["dead"] == []
    assert "No publication crossed from broker to broker." in text


def test_a_file_that_is_not_parquet_is_named(tmp_path):
    write_tables(tmp_path, {})
    (tmp_path / "delay" / "part-1.parquet").write_text("PAR1 not really")

    with pytest.raises(InputError, match="delay: not a readable Parquet table"):
        read_tables(tmp_path)


def test_files_of_a_write_under_way_are_not_read(tmp_path):
    write_tables(tmp_path, {})
    for hidden in (".part-1.parquet.crc", "_temporary/0/part-1.parquet", ".x.parquet"):
        path = tmp_path / "delay" / hidden
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")

    assert read_tables(tmp_path)["delay"] == []


def test_a_table_with_more_rows_than_are_read_is_said_to_be_cut(tmp_path):
    event = example()["events"][0]
    write_tables(tmp_path, {"span": example()["span"]})
    write_table(tmp_path, "events", [event] * (ROWS_MAX + 1))

    tables = read_tables(tmp_path)

    assert len(tables["events"]) == ROWS_MAX
    assert tables.cut == {"events"}
    assert any("events" in each["text"] for each in summarise(tables, "")["findings"])
