"""Wait until all are ready, then print where to look: ``welcome.py HOST[:PORT]...``."""

import sys
import time

from healthy import answers

DEADLINE_S, POLL_S = 180.0, 1.0
HTTP_PORT = 9883

TEXT = """
The federation is up: nine brokers with their agents, and two gateways. Agents sign what they say.

  receive on broker 2   mosquitto_sub -p 18832 -t 'hello/#' -v
  publish on broker 6   mosquitto_pub -p 18836 -t hello/world -m hi
  a gateway             mosquitto_sub -p 18841 -t 'hello/#' -v    (keeps going when its broker dies)

  without the clients   docker-compose exec broker-2 mosquitto_sub -t 'hello/#' -v
  one agent's view      docker-compose exec agent-4 federator status    (or topology, explain TOPIC)
  a report              docker-compose run --rm report
  dashboards            docker-compose --profile grafana up -d    http://127.0.0.1:18893
  Prometheus alone      docker-compose --profile prometheus up -d    http://127.0.0.1:18890

Brokers listen on 127.0.0.1, ports 18830 to 18838, gateways on 18841 and 18842. More: docs/deploy.md
"""


def main() -> int:
    """0 once all are ready, 1 when some are not in time."""
    words = (word.partition(":") for word in sys.argv[1:])
    waiting = [(host, int(port or HTTP_PORT)) for host, _, port in words]
    end = time.monotonic() + DEADLINE_S
    while waiting := [one for one in waiting if not answers(*one, "/readyz")]:
        if time.monotonic() > end:
            names = ", ".join(host for host, _ in waiting)
            print(f"not ready after {DEADLINE_S:.0f} s: {names}: see their logs")
            return 1
        time.sleep(POLL_S)
    print(TEXT, flush=True)
    return 0


sys.exit(main())
