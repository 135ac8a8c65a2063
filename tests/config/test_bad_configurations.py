"""Every mistake in a configuration: one line that names what to mend, the right code, quickly."""

import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from federator.cli import main
from tests.config.conftest import GOOD

SECONDS_MAX = 2.0


def hubs(*ports):
    """More hubs, as TOML."""
    return "".join(f'[[neighbours]]\nurl = "mqtt://127.0.0.1:{port}"\n' for port in ports)


THIRD_HUBS, SEVENTEEN_HUBS = hubs(3883, 4883), hubs(*range(3883, 3900))

# What is added to or replaced in the good configuration, the exit code, the line of the complaint
# (None: about the file as a whole), and what the complaint must say.
SPOILT = {
    "a syntax error": (("id = 1", "id = = 1"), 78, 3, "TOML syntax"),
    "a string left open": (("1883", '1883"\nx = """'), 78, None, "TOML syntax"),
    "a key twice": (("id = 1", "id = 1\nid = 2"), 78, 4, "TOML syntax"),
    "an unknown key": (("id = 1", "idd = 1"), 78, 3, "unknown key 'broker.idd': did you mean id"),
    "an unknown section": (("", "[meshes]\n"), 78, 7, "'meshes': did you mean mesh"),
    "an unknown key far off": (("", "[data]\nqqqq = 1\n"), 78, 8, "keys here: busy_poll_us"),
    "no broker": ((GOOD, 'federation = "fed"\n'), 78, None, "broker is missing: add [broker]"),
    "no id": (("id = 1\n", ""), 78, 2, "broker.id is missing: add"),
    "text for a number": (("id = 1", 'id = "one"'), 78, 3, "broker.id = 'one': it should be a wh"),
    "a truth for a number": (("id = 1", "id = true"), 78, 3, "broker.id = true: it should be a wh"),
    "a number for a section": (("", "mesh = 3\n"), 78, 7, "unknown key"),
    "a negative id": (("id = 1", "id = -1"), 78, 3, "broker.id = -1: it should be greater than"),
    "an id beyond 32 bits": (("id = 1", "id = 4294967296"), 78, 3, "less than or equal to 42949"),
    "text for a share": (
        ("", '[opentelemetry]\nsample = "all"\n'),
        78,
        8,
        "opentelemetry.sample = 'all': it should be a number",
    ),
    "a share above all": (
        ("", "[opentelemetry]\nsample = 1.5\n"),
        78,
        8,
        "less than or equal to 1",
    ),
    "a share that is no number": (
        ("", "[opentelemetry]\nsample = nan\n"),
        78,
        8,
        "opentelemetry.sample = nan",
    ),
    "a collector at a broker's URL": (
        ("", '[opentelemetry]\nendpoint = "mqtt://h"\n'),
        78,
        8,
        "is no collector's URL for OTLP over HTTP: write one like http://127.0.0.1:4318",
    ),
    "a collector's URL with a password": (
        ("", '[opentelemetry]\nendpoint = "https://me:secret@h"\n'),
        78,
        8,
        "the URL holds credentials: set OTEL_EXPORTER_OTLP_HEADERS",
    ),
    "a huge number": (("id = 1", f"id = {'9' * 5000}"), 78, None, "shorten the value"),
    "no redundancy": (("", "[mesh]\nredundancy = 0\n"), 78, 8, "mesh.redundancy = 0"),
    "a word of another list": (("", '[log]\nlevel = "loud"\n'), 78, 8, "log.level = 'loud'"),
    "a federation with a slash": (('"fed"', '"a/b"'), 78, 1, "federation = 'a/b': it should match"),
    "another scheme": (("mqtt://127.0.0.1:1883", "http://h"), 78, 4, "broker.url = 'http://h'"),
    "a URL without a host": (("mqtt://127.0.0.1:1883", "mqtt://"), 78, 4, "host and port only"),
    "a port beyond 16 bits": (("0.1:1883", "0.1:70000"), 78, 4, "has a bad host or port"),
    "IPv6 without brackets": (
        ("mqtt://127.0.0.1:1883", "mqtt://2001:db8::1:1883"),
        78,
        4,
        "an IPv6 address stands in brackets: write mqtt://[2001:db8::1]:1883",
    ),
    "an endpoint of IPv6 without brackets": (
        ("", '[direct]\nlisten = ":::18840"\n'),
        78,
        8,
        "an IPv6 address stands in brackets: write [::]:18840",
    ),
    "port zero": (("0.1:1883", "0.1:0"), 78, 4, "has port 0"),
    "a path in the URL": (("0.1:1883", "0.1:1883/x"), 78, 4, "host and port only"),
    "a query in a WebSocket's URL": (
        ("mqtt://127.0.0.1:1883", "ws://127.0.0.1/mqtt?token=1"),
        78,
        4,
        "is not host, port and path only: write wss://host/mqtt",
    ),
    "a WebSocket's path in other letters": (
        ("mqtt://127.0.0.1:1883", "wss://h/\u00e9"),
        78,
        4,
        "is not host, port and path only",
    ),
    "TLS files with a WebSocket in clear": (
        ('mqtt://127.0.0.1:1883"', 'ws://127.0.0.1"\nca_file = "x"'),
        78,
        5,
        "ca_file with ws://127.0.0.1, which is without TLS: use wss://, or remove ca_file",
    ),
    "a name that rings a terminal's bell": (
        ("id = 1\n", 'id = 1\nname = "hall\\u0007"\n'),
        78,
        4,
        "broker.name = 'hall\\x07' holds characters that cannot be printed: give at most 64 bytes",
    ),
    "a long name": (
        ("id = 1\n", f'id = 1\nname = "{"h" * 65}"\n'),
        78,
        4,
        "is too long: give at most 64 bytes of printable text",
    ),
    "a relative socket": (
        ("id = 1\n", 'id = 1\nsocket = "m.sock"\n'),
        78,
        4,
        "broker.socket = 'm.sock' is no path of a socket: write one like /run/mosquitto/a.sock",
    ),
    "a socket with a long path": (
        ("id = 1\n", f'id = 1\nsocket = "/run/{"m" * 103}"\n'),
        78,
        4,
        "is too long: at most 107 bytes",
    ),
    "a bad neighbour URL": (
        ("0.1:2883", "0.1:x"),
        78,
        6,
        "neighbours[0].url = 'mqtt://127.0.0.1:x",
    ),
    "a leaf without a hub": (
        ('[[neighbours]]\nurl = "mqtt://127.0.0.1:2883"\n', '[log]\nlevel = "info"\n'),
        78,
        None,
        "a leaf has one hub or two, and 0 neighbours are named: name its hub, and perhaps one in "
        "reserve",
        'role = "leaf"\n',
    ),
    "a leaf with three hubs": (
        ("", THIRD_HUBS),
        78,
        None,
        "a leaf has one hub or two, and 3 neighbours are named: name its hub, and perhaps one in "
        "reserve",
        'role = "leaf"\n',
    ),
    "a leaf with two hubs of which one has no id": (
        ("", '[[neighbours]]\nurl = "mqtt://127.0.0.1:3883"\n'),
        78,
        None,
        "it is missing: name each hub's id",
        'role = "leaf"\n',
    ),
    "a leaf of a leaf": (
        ("", "[[leaves]]\nid = 7\n"),
        78,
        None,
        "a leaf has no leaves: remove them, or role",
        'role = "leaf"\n',
    ),
    "a leaf that joins by seeds": (
        ("", '[topology]\nmode = "auto"\nseeds = ["mqtt://127.0.0.1:3883"]\n'),
        78,
        None,
        "a leaf hangs on hubs that have an entry for it: name them as [[neighbours]]",
        'role = "leaf"\n',
    ),
    "a leaf that chooses among more hubs than it may": (
        ("", SEVENTEEN_HUBS + '[topology]\nmode = "auto"\n'),
        78,
        None,
        "18 hubs are named to choose from: name 1 to 16",
        'role = "leaf"\n',
    ),
    "a leaf that chooses among hubs without ids": (
        ("", '[topology]\nmode = "auto"\n'),
        78,
        None,
        "it is missing: name each hub's id",
        'role = "leaf"\n',
    ),
    "a leaf in the guide": (
        ("", "[failover]\nenabled = true\n"),
        78,
        None,
        "failover.enabled does not reach through a hub: remove it, or role",
        'role = "leaf"\n',
    ),
    "groups of a leaf with others": (
        ("", '[share]\nscope = "federation"\n'),
        78,
        None,
        "share.scope does not reach through a hub: remove it, or role",
        'role = "leaf"\n',
    ),
    "two leaves with one id": (
        ("", "[[leaves]]\nid = 7\n[[leaves]]\nid = 7\n"),
        78,
        None,
        "id 7 is of a leaf and of another leaf: give every broker its own id",
    ),
    "a leaf with the hub's own id": (
        ("", "[[leaves]]\nid = 1\n"),
        78,
        None,
        "id 1 is of a leaf and of this broker: give every broker its own id",
    ),
    "a leaf that is a neighbour": (
        ("", "id = 7\n[[leaves]]\nid = 7\n"),
        78,
        None,
        "id 7 is of a leaf and of a neighbour: give every broker its own id",
    ),
    "a leaf of the hub's own broker": (
        ("", '[[leaves]]\nid = 7\nurl = "mqtt://127.0.0.1:1883"\n'),
        78,
        None,
        "mqtt://127.0.0.1:1883 is already broker.url: name each broker once",
    ),
    "rules of a leaf where all is proven": (
        ("", '[[leaves]]\nid = 7\ndeny = ["a/#"]\n'),
        78,
        None,
        "rules of a leaf take publications out of what its origin signed",
        'security = "proven"\n',
    ),
    "a name too long for leaves": (
        ('federation = "fed"', f'federation = "{"f" * 60}"'),
        78,
        None,
        "the federation of a leaf, has more than 64 characters: shorten it",
        "",
        "[[leaves]]\nid = 7\n",
    ),
    "no room for filters of leaves": (
        ("", "[hub]\nfilters_max = 2\n"),
        78,
        None,
        "hub.filters_max = 2: it should be greater than or equal to 3",
    ),
    "the own id as neighbour": (("", "id = 1\n"), 78, 7, "neighbour id 1 is this broker's own id"),
    "a capacity in a unit of its own": (
        ("", 'capacity = "2 Mbps"\n'),
        78,
        7,
        "neighbours[0].capacity = '2 Mbps' is no capacity: write \"2 Mbit/s\" (kbit/s,",
    ),
    "a capacity that carries nothing": (
        ("", 'capacity = "0 Mbit/s"\n'),
        78,
        7,
        "neighbours[0].capacity = '0 Mbit/s' is 0 bit/s: give 1 kbit/s to 1000 Gbit/s",
    ),
    "a capacity below any line's": (
        ("", "capacity = 9\n"),
        78,
        7,
        "neighbours[0].capacity = 9: it",
    ),
    "a capacity that is a truth": (
        ("", "capacity = true\n"),
        78,
        7,
        "neighbours[0].capacity = true",
    ),
    "more flows than a word holds": (
        ("", "[steer]\nflows_max = 1025\n"),
        78,
        8,
        "steer.flows_max = 1025: it should be less than or equal to 1024",
    ),
    "a number for a switch": (("", "[steer]\nfollow = 1\n"), 78, 8, "steer.follow = 1: it should"),
    "one table of neighbours": (("[[neighbours]]", "[neighbours]"), 78, 5, "write [[neighbours]]"),
    "a neighbour id twice": (
        ("", 'id = 2\n[[neighbours]]\nid = 2\nurl = "mqtt://c"\n'),
        78,
        9,
        "neighbour id 2 appears twice",
    ),
    "a neighbour URL twice": (
        ("", '[[neighbours]]\nurl = "mqtt://127.0.0.1:2883"\n'),
        78,
        8,
        "is already neighbours.0.url",
    ),
    "the own URL as neighbour": (("0.1:2883", "0.1:1883"), 78, 6, "is already broker.url"),
    "an invalid filter": (
        ("", '[discovery]\nfilters = ["a/#/b"]\n'),
        78,
        8,
        "discovery.filters[0] = 'a/#/b' is not a topic filter",
    ),
    "a filter that may not travel": (
        ("", '[discovery]\nfilters = ["$SYS/#"]\n'),
        78,
        8,
        "starts with $",
    ),
    "an import that is no filter": (
        ("", 'id = 2\nimport = ["a/#/b"]\n'),
        78,
        8,
        "neighbours[0].import[0] = 'a/#/b' is not a topic filter",
    ),
    "seeds that nobody uses": (
        ("", '[topology]\nseeds = ["mqtt://127.0.0.1:3883"]\n'),
        78,
        8,
        'topology.seeds with topology.mode = "static": set topology.mode = "auto"',
    ),
    "a seed that is a neighbour": (
        ("", '[topology]\nmode = "auto"\nseeds = ["mqtt://127.0.0.1:2883"]\n'),
        78,
        9,
        "mqtt://127.0.0.1:2883 is already neighbours[0].url",
    ),
    "a seed that is no broker": (
        ("", '[topology]\nmode = "auto"\nseeds = ["http://h"]\n'),
        78,
        9,
        "topology.seeds[0] = 'http://h'",
    ),
    "too few neighbours to be safe": (
        ("", '[topology]\nmode = "auto"\nneighbours = 3\n'),
        78,
        9,
        "topology.neighbours = 3",
    ),
    "hosts that are a bad network": (
        ("", '[topology]\nhosts = ["10.1.2.3/8"]\n'),
        78,
        8,
        "topology.hosts[0] = '10.1.2.3/8' is not a network",
    ),
    "hosts with a star inside": (
        ("", '[topology]\nhosts = ["a*.org"]\n'),
        78,
        8,
        "topology.hosts[0] = 'a*.org' names no hosts: write gateway-7",
    ),
    "a password for whoever names himself": (
        (GOOD, f'security = "open"\n{GOOD}[links]\nusername = "u"\n[topology]\nmode = "auto"\n'),
        78,
        None,
        "in an open federation any client can name an address",
    ),
    "datagrams in an open federation": (
        (GOOD, f'security = "open"\n{GOOD}[links]\ntransport = "udp-fec"\n'),
        78,
        None,
        'datagrams are sealed, and agents have no keys with security = "open"',
    ),
    "datagrams to one neighbour in an open federation": (
        (GOOD, f'security = "open"\n{GOOD}id = 2\ntransport = "udp-fec"\n'),
        78,
        9,
        "datagrams are sealed, and agents have no keys",
    ),
    "a transport to nobody in particular": (
        ("", 'transport = "udp-fec"\n'),
        78,
        7,
        "neighbour.transport without neighbour.id: add its id",
    ),
    "frames that others can read, straight between agents": (
        ("", '[links]\ntransport = "direct"\nallow_plaintext = false\n'),
        78,
        8,
        "frames go between agents readable with security = 'signed': use security",
    ),
    "a folder for sockets that is none": (
        ("", '[direct]\nfolder = "run"\n'),
        78,
        8,
        "direct.folder = 'run' is no folder for sockets: write an absolute path",
    ),
    "a port for agents without a host": (
        ("", '[direct]\nlisten = "18840"\n'),
        78,
        8,
        "direct.listen = '18840' is not host:port: write one like 0.0.0.0:18840",
    ),
    "another transport": (("", '[links]\ntransport = "sctp"\n'), 78, 8, "links.transport = 'sctp'"),
    "a port for datagrams alone": (
        ("", '[udp]\nlisten = "18840"\n'),
        78,
        8,
        "udp.listen = '18840' is not host:port: write one like 0.0.0.0:18840",
    ),
    "an address for datagrams without a port": (
        ("", '[udp]\nadvertise = "::1"\n'),
        78,
        8,
        "udp.advertise = '::1' is not host:port",
    ),
    "datagrams that no road takes": (
        ("", "[udp]\ndatagram_bytes = 9000\n"),
        78,
        8,
        "udp.datagram_bytes = 9000: it should be less than or equal to 1472",
    ),
    "rules for a neighbour without an id": (
        ("", 'export = ["a/#"]\n'),
        78,
        7,
        "neighbour.export without neighbour.id: add its id",
    ),
    "an import that its deny forbids": (
        ("", 'id = 2\nimport = ["a/b"]\ndeny = ["a/#"]\n'),
        78,
        8,
        "import[0] = 'a/b' lets nothing cross, for its deny has 'a/#': remove one of the two",
    ),
    "an export that the federation's deny forbids": (
        ("", 'id = 2\nexport = ["x/y"]\n[rules]\ndeny = ["x/#"]\n'),
        78,
        8,
        "neighbours[0].export[0] = 'x/y' lets nothing cross, for rules.deny has 'x/#'",
    ),
    "a rule of a link where frames are proven": (
        (GOOD, f'security = "proven"\n{GOOD}id = 2\ndeny = ["a/#"]\n'),
        78,
        1,
        "what is left is not what its origin signed: use",
    ),
    "something denied where frames are proven": (
        (GOOD, f'security = "proven"\n{GOOD}[rules]\ndeny = ["a/#"]\n'),
        78,
        1,
        "what is left is not what its origin signed: use",
    ),
    "an export that is kept": (
        ("", '[rules]\nexport = ["a/b"]\nkeep = ["a/#"]\n'),
        78,
        8,
        "rules.export[0] = 'a/b' lets nothing cross, for rules.keep has 'a/#'",
    ),
    "an import that is denied": (
        ("", '[rules]\nimport = ["a/b"]\ndeny = ["a/#"]\n'),
        78,
        8,
        "rules.import[0] = 'a/b' lets nothing cross, for rules.deny has 'a/#'",
    ),
    "a prefix without its end": (
        ("", '[rules]\nrename = [{local = "a", federation = "b/"}]\n'),
        78,
        8,
        "rules.rename[0].local = 'a' does not end with / after a name: "
        "write one like plant7/ (whole = true: this topic alone)",
    ),
    "renames of one topic": (
        (
            "",
            '[rules]\nrename = [{local = "a/", federation = "b/"}, '
            '{local = "c/", federation = "b/"}]\n',
        ),
        78,
        8,
        "rules.rename[1].federation = 'b/' is that of rename[0], too: give every topic one rename",
    ),
    "a whole topic that is none": (
        ("", '[rules]\nrename = [{local = "a/", federation = "b/", whole = true}]\n'),
        78,
        8,
        "rules.rename[0].local = 'a/' with whole = true is no topic: write one like plant7",
    ),
    "half a rename": (
        ("", '[rules]\nrename = [{local = "a/"}]\n'),
        78,
        8,
        "rules.rename[0].federation is missing",
    ),
    "a misspelt rename": (
        ("", '[rules]\nrename = [{local = "a/", federatio = "b/"}]\n'),
        78,
        8,
        "unknown key 'rules.rename[0].federatio': did you mean federation",
    ),
    "a word for a watch": (
        ("", '[loops]\nwatch = "sometimes"\n'),
        78,
        8,
        "loops.watch = 'sometimes': it should be 'auto', 'always' or 'never'",
    ),
    "a turnaround too short": (
        ("", "[loops]\nturnaround_ms_max = 1\n"),
        78,
        8,
        "loops.turnaround_ms_max = 1: it should be greater than or equal to 5",
    ),
    "a timeout under its interval": (
        ("", "[links]\nhello_timeout_ms = 1000\n"),
        78,
        8,
        "not more than hello_interval_ms = 1000",
    ),
    "back-off upside down": (
        ("", "[links]\nreconnect_max_ms = 50\n"),
        78,
        8,
        "less than reconnect_min_ms = 100",
    ),
    "a gap as long as its interval": (
        ("", "[mesh]\ncore_ann_gap_ms = 5000\n"),
        78,
        8,
        "not less than core_ann_interval_ms",
    ),
    "a listener for everybody": (("", '[http]\nhost = "0.0.0.0"\n'), 78, 8, "is not loopback"),
    "a proxy of another kind": (
        ("", '[links]\nproxy = "socks5://proxy:1080"\n'),
        78,
        8,
        "'socks5://proxy:1080' is no proxy: write one like http://proxy:3128",
    ),
    "a proxy without a port": (("", '[links]\nproxy = "http://proxy"\n'), 78, 8, "is no proxy"),
    "a password for a proxy": (
        ("", '[links]\nproxy = "http://me:hush@proxy:3128"\n'),
        78,
        8,
        "the URL holds credentials: use proxy_username and proxy_password_file",
    ),
    "a user name for no proxy": (
        ("", '[links]\nproxy_username = "me"\n'),
        78,
        8,
        "proxy_username without proxy: add proxy, or remove it",
    ),
    "a user name for a proxy that would end early": (
        ("", '[links]\nproxy = "http://p:1"\nproxy_username = "a:b"\nproxy_password_file = "x"\n'),
        78,
        9,
        "proxy_username holds a colon: correct it",
    ),
    "a user name for a proxy without a password": (
        ("", '[links]\nproxy = "http://p:1"\nproxy_username = "me"\n'),
        78,
        9,
        "proxy_username without proxy_password_file: add proxy_password_file, or remove",
    ),
    "a password for a proxy without a user name": (
        ("", '[links]\nproxy = "http://p:1"\nproxy_password_file = "x"\n'),
        78,
        9,
        "proxy_password_file without proxy_username: add proxy_username, or remove",
    ),
    "a password for a proxy that is nowhere": (
        ("", '[links]\nproxy = "http://p:1"\nproxy_username = "u"\nproxy_password_file = "/n"\n'),
        78,
        10,
        "/n: no such file or directory: correct the path",
    ),
    "a third manner of dialling": (("", '[links]\ndial = "in"\n'), 78, 8, "links.dial"),
    "plaintext that is not wanted": (
        ("127.0.0.1:2883", 'gw2"\n[links]\nallow_plaintext = false\n#'),
        78,
        6,
        "mqtt://gw2 is plaintext off this host: use mqtts://",
    ),
    "a password without a name": (("id = 1", 'id = 1\npassword = "x"'), 78, 4, "add username"),
    "a password twice": (
        ("id = 1", 'id = 1\nusername = "u"\npassword = "x"\npassword_file = "y"'),
        78,
        5,
        "both password and password_file",
    ),
    "TLS files without TLS": (("id = 1", 'id = 1\nca_file = "x"'), 78, 4, "use mqtts://"),
    "a missing password file": (
        ("id = 1", 'id = 1\nusername = "u"\npassword_file = "/nowhere/secret"'),
        78,
        5,
        "/nowhere/secret: no such file",
    ),
    "a missing certificate": (
        ('"mqtt://127.0.0.1:1883"', '"mqtts://127.0.0.1"\nca_file = "/nowhere/ca.pem"'),
        78,
        5,
        "/nowhere/ca.pem: no such file",
    ),
    "a certificate without a key": (
        ('"mqtt://127.0.0.1:1883"', '"mqtts://127.0.0.1"\ncert_file = "x"'),
        78,
        5,
        "add key_file",
    ),
}


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on standard error."""
    begun = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert time.monotonic() - begun < SECONDS_MAX
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.err.rstrip("\n")


@pytest.mark.parametrize("case", SPOILT)
def test_a_mistake_is_one_line_with_file_line_what_and_how(case, write, capsys):
    (old, new), wanted_code, wanted_line, wanted_text, *around = SPOILT[case]
    before, after = (*around, "", "")[:2]
    path = write(before + (GOOD.replace(old, new, 1) if old else GOOD + new) + after)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == wanted_code
    assert wanted_text in line
    place = re.escape(str(path)) + (r"(:\d+)?" if wanted_line is None else f":{wanted_line}")
    assert re.match(rf"federator: {place}: .+: .+", line), line


def test_a_missing_file_is_66(tmp_path, capsys):
    code, line = complaint(["check-config", "-c", str(tmp_path / "none.toml")], capsys)

    assert code == 66
    assert (
        line
        == f"federator: {tmp_path}/none.toml: no such file: name the configuration with -c FILE"
    )


def test_a_name_with_a_line_break_is_still_one_line(write, capsys):
    secret = "password_file = 'a\\u000ab\\u0000'".replace("'", '"')
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\n{secret}'))

    in_file, line = complaint(["check-config", "-c", str(path)], capsys)
    in_name, other = complaint(["check-config", "-c", "no\nsuch\x1b[31m"], capsys)

    assert (in_file, in_name) == (78, 66)
    assert line.startswith(f"federator: {path}:5: {path.parent}/a?b?: ")
    assert other.startswith("federator: no?such?[31m: no such file: ")


def test_a_folder_in_place_of_a_file_is_66(tmp_path, capsys):
    code, line = complaint(["check-config", "-c", str(tmp_path)], capsys)

    assert code == 66
    assert "is a directory: name a readable TOML file" in line


def test_bytes_that_are_not_utf8_are_78_with_their_line(tmp_path, capsys):
    path = tmp_path / "f.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:2: not UTF-8: ")


def test_a_file_of_nothing_but_depth_is_78(write, capsys):
    path = write("x = " + "[" * 100_000)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "nested too deeply" in line


def test_an_endless_file_is_refused_unread(capsys):
    code, line = complaint(["check-config", "-c", "/dev/zero"], capsys)

    assert code == 78
    assert "larger than" in line


def test_a_file_this_user_may_not_read_is_77(write):
    path = write(GOOD)
    path.chmod(0)
    # Root may read everything, so the reader first becomes nobody to the file system.
    give_up = (
        "import ctypes, os, sys; import federator.cli.setup.check_config\n"
        "from federator.cli import main\n"
        "os.geteuid() == 0 and ctypes.CDLL(None).setfsuid(65534)\n"
        "main(['check-config', '-c', sys.argv[1]])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", give_up, str(path)], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 77, ended.stderr
    assert ended.stderr == (
        f"federator: {path}: not readable by this user: change its owner or mode\n"
    )


def test_an_empty_password_file_is_78(write, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("\nhush\n")
    secret.chmod(0o600)
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\npassword_file = "{secret}"'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:5: {secret}: its first line is empty: ")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_password_file_open_to_others_is_77(mode, write, tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    secret.chmod(mode)
    path = write(GOOD.replace("id = 1", f'id = 1\nusername = "u"\npassword_file = "{secret}"'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 77
    assert line == f"federator: {path}:5: {secret} is open to others: chmod o= {secret}"


@pytest.mark.parametrize(
    ("content", "mode", "code", "told"),
    [
        ("hush\n", 0o644, 77, "is open to others: chmod o="),
        ("\nhush\n", 0o600, 78, "its first line is empty: write the password there"),
    ],
)
def test_a_password_for_a_proxy_is_kept_as_others_are(content, mode, code, told, write, capsys):
    path = write(GOOD)
    secret = path.parent / "proxy-password"
    secret.write_text(content)
    secret.chmod(mode)
    lines = 'proxy = "http://p:1"\nproxy_username = "me"\nproxy_password_file = "proxy-password"'
    path.write_text(GOOD.replace("[[neighbours]]", f"[links]\n{lines}\n[[neighbours]]", 1))

    got, line = complaint(["check-config", "-c", str(path)], capsys)

    assert got == code
    assert told in line
    assert "hush" not in line


def test_a_configuration_with_a_password_open_to_others_is_77(write, capsys):
    path = write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = "hush"'))
    path.chmod(path.stat().st_mode | stat.S_IROTH)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 77
    assert line.startswith(f"federator: {path}:5: {path} holds a password and is open to others")
    assert "hush" not in line


def test_a_password_of_the_wrong_type_is_not_shown(write, capsys):
    path = write(GOOD.replace("id = 1", 'id = 1\nusername = "u"\npassword = 12345'))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "12345" not in line


def test_credentials_in_a_url_are_not_shown(write, capsys):
    path = write(GOOD.replace("mqtt://127", "mqtt://me:hush@127", 1))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert "hush" not in line


TLS = 'url = "mqtts://127.0.0.1"\n'


@pytest.mark.parametrize(
    ("files", "wanted_code", "wanted_line", "wanted_text"),
    [
        ("ca_file = '{0}/expired.pem'", 78, 5, "expired.pem expired on 2021-01-01: renew it"),
        ("cert_file = '{0}/expired.pem'\nkey_file = '{0}/expired.key'", 78, 5, "expired on 2021-"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/other.key'", 78, 6, "is not the key of"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/good.pem'", 77, 6, "open to others"),
        ("cert_file = '{0}/good.key'\nkey_file = '{0}/good.key'", 78, 5, "no PEM certificate"),
        ("cert_file = '{0}/good.pem'\nkey_file = '{0}/locked.key'", 78, 6, "unencrypted PEM key"),
        ("ca_file = '/dev/zero'", 78, 5, "is not a file"),
    ],
)
def test_certificates_that_cannot_serve_are_refused(
    files, wanted_code, wanted_line, wanted_text, write, certificates: Path, capsys
):
    tls = TLS + files.format(certificates)
    path = write(GOOD.replace('url = "mqtt://127.0.0.1:1883"', tls, 1))

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert (code, wanted_text in line) == (wanted_code, True), line
    assert line.startswith(f"federator: {path}:{wanted_line}: ")


def test_certificates_for_all_links_are_checked_too(write, certificates: Path, capsys):
    path = write(GOOD + f"[links]\nca_file = '{certificates}/expired.pem'\n")

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line.startswith(f"federator: {path}:8: {certificates}/expired.pem expired on ")


def test_certificates_that_serve_are_accepted(write, certificates: Path, capsys):
    names = {"ca_file": "other.pem", "cert_file": "good.pem", "key_file": "good.key"}
    tls = TLS + "\n".join(f"{key} = '{certificates / name}'" for key, name in names.items())
    text = GOOD.replace('url = "mqtt://127.0.0.1:1883"', tls, 1)
    path = write(f'security = "open"\n{text}')

    with pytest.raises(SystemExit) as ended:
        main(["check-config", "-c", str(path)])

    assert ended.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("FEDERATOR_BROKER__ID", "seven", "broker.id = 'seven': it should be a whole number"),
        ("FEDERATOR_BROKER__IDD", "7", "unknown key 'broker.idd': did you mean id"),
        (
            "FEDERATOR_BROKER_ID",
            "7",
            "one underscore between section and key: write FEDERATOR_BROKER__ID",
        ),
        ("FEDERATOR_NEIGHBOURS", "mqtt://b", "neighbours = 'mqtt://b': it should be a list"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variable, value, wanted, write, monkeypatch, capsys
):
    path = write(GOOD)
    monkeypatch.setenv(variable, value)

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 78
    assert line == f"federator: ${variable}: {wanted}"


def test_a_state_folder_that_cannot_be_had_is_named(write, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    path = write(f'security = "open"\nstate_dir = "{tmp_path}/file/state"\n{GOOD}')

    code, line = complaint(["check-config", "-c", str(path)], capsys)

    assert code == 73
    wanted = "Not a directory: name a folder this user may write"
    assert line == f"federator: state_dir: {tmp_path}/file/state: {wanted}"
