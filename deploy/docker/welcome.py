"""Wait until all are ready, then print where to look: ``welcome.py HOST[:PORT]...``.

The last one is the dashboard, which is ready when it shows what was recorded just now.
"""

import json
import os
import sys
import time
from http.client import HTTPException
from urllib.request import urlopen

from healthy import answers

DEADLINE_S, POLL_S = 300.0, 1.0
HTTP_PORT, DASHBOARD_PORT = 9883, 8650
LIVE_MS = 60_000
"""Records that are older are not of now."""

TEXT = """
The federation is up: {agents} brokers, an agent beside each, and two gateways.

  receive on broker 2   mosquitto_sub -p 18832 -t 'hello/#' -v
  publish on broker 6   mosquitto_pub -p 18836 -t hello/world -m hi
  a gateway             mosquitto_sub -p 18841 -t 'hello/#' -v    (keeps going when its broker dies)

  without the clients   docker-compose exec broker-2 mosquitto_sub -t 'hello/#' -v
  one agent's view      docker-compose exec agent-4 federator status    (or topology, explain TOPIC)
  a report              docker-compose run --rm -T report > report.html
  Prometheus, Grafana   docker-compose --profile grafana up -d    http://{host}:18893
  one broker more       script/add-broker 9 8
  more                  docs/deploy.md

Open http://{host}:18887/ for the live map, and http://{host}:18850/ for the last hours.
"""


def is_ready(host: str, port: int) -> bool:
    """Whether that one says so; the dashboard by the age of what it shows."""
    if port != DASHBOARD_PORT:
        return answers(host, port, "/readyz")
    try:
        with urlopen(f"http://{host}:{port}/live", timeout=10) as answer:
            told = json.load(answer)
    except (OSError, HTTPException, ValueError):
        return False
    return bool(told["newest_ms"]) and told["now_ms"] - told["newest_ms"] <= LIVE_MS


def main() -> int:
    """0 once all are ready, 1 when some are not in time."""
    words = [word.partition(":") for word in sys.argv[1:]]
    waiting = [(host, int(port or HTTP_PORT)) for host, _, port in words]
    agents = sum(port == HTTP_PORT for _, port in waiting)
    end = time.monotonic() + DEADLINE_S
    while waiting := [one for one in waiting if not is_ready(*one)]:
        if time.monotonic() > end:
            names = ", ".join(host for host, _ in waiting)
            print(f"not ready after {DEADLINE_S:.0f} s: {names}: see docker-compose logs of them")
            return 1
        time.sleep(POLL_S)
    bind = os.environ.get("FEDERATOR_BIND", "127.0.0.1")
    host = "127.0.0.1" if bind == "0.0.0.0" else bind
    print(TEXT.format(agents=agents, host=host), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
