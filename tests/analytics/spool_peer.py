"""Somebody who holds batches at a real broker and answers as docs/metrics.md says.

Tests of the reader need an agent whose spool they fill, cut and lose at will, and that forgets,
repeats or withholds parts of an answer. Real agents are read in test_federator_mqtt.py.
"""

import json
import threading
from itertools import count

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from federator.protocol.telemetry.replay import digest_of

HEAD_EVERY_S = 0.1
BATCHES_PER_MESSAGE = 7


class SpoolPeer:
    """A context manager.

    Attributes:
        spool: Its id.
        batches: Number to lines; what is held.
        asked: (first, last) of every question, and
        words: each as it came.
        sign: Puts a proof into what is said on a topic.
        forget: Numbers of messages, counted from 0 over all answers, that are not sent.
        twice: Every message is sent twice.
        silent: Questions are not answered.
    """

    def __init__(self, port, broker, *, federation="fed", spool="a" * 16, login=None):
        self.broker = broker
        self.spool = spool
        self.batches = {}
        self.asked, self.words = [], []
        self.sign = lambda topic, word: word
        self.forget = set()
        self.twice = False
        self.silent = False
        self._federation = federation
        self._messages = count()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"peer-{broker}")
        self._client.on_message = self._answer
        if login is not None:
            self._client.username_pw_set(*login)
        self._client.connect("127.0.0.1", port)
        self._client.subscribe(self._topic("metrics/ask"), 1)
        self._thread = threading.Thread(target=self._heads, daemon=True)

    def __enter__(self):
        self._client.loop_start()
        self._tell_head().wait_for_publish()  # whoever reads hears of a head, on a busy machine too
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stopped.set()
        self._thread.join()
        self._client.disconnect()
        self._client.loop_stop()
        self._client.on_message = None  # else a cycle keeps its sockets open

    def write(self, batches, *, lines_each=2):
        """Append so many batches."""
        with self._lock:
            begin = max(self.batches, default=0) + 1
            for batch in range(begin, begin + batches):
                self.batches[batch] = [self.line(batch, row) for row in range(lines_each)]

    def drop(self, below):
        """Forget the batches below this number."""
        with self._lock:
            self.batches = {n: lines for n, lines in self.batches.items() if n >= below}

    def lose(self, spool):
        """The disk is gone: another spool, empty."""
        with self._lock:
            self.spool, self.batches = spool, {}

    def line(self, batch, row):
        told = {"v": 1, "table": "agents", "federation": self._federation, "broker": self.broker}
        told |= {"epoch": 1, "spool": self.spool, "batch": batch, "row": row}
        return json.dumps(told | {"at_us": batch * 1_000_000, "window_ms": 1000})

    def guide(self, brokers):
        """Keep a guide that lists ``brokers``: id, address and state."""
        listed = [{"id": i, "address": a, "state": s} for i, a, s in brokers]
        told = {"version": 1, "federation": self._federation, "broker": self.broker}
        told |= {"controller": 1, "epoch": 1, "number": 1, "brokers": listed}
        topic = self._topic("guide")
        payload = self.sign(topic, json.dumps(told).encode())
        self._client.publish(topic, payload, 1, True).wait_for_publish()

    def _topic(self, name):
        return f"$fed/{self._federation}/{name}"

    def _held(self):
        last = max(self.batches, default=0)
        return min(self.batches, default=last + 1), last

    def _heads(self):
        while not self._stopped.wait(HEAD_EVERY_S):
            self._tell_head()

    def _tell_head(self):
        with self._lock:
            first, last = self._held()
            head = {"v": 1, "broker": self.broker, "spool": self.spool}
        head |= {"first": first, "last": last, "at_us": 7_000_000}
        topic = self._topic("metrics/head")
        return self._client.publish(topic, self.sign(topic, json.dumps(head).encode()), 1, True)

    def _answer(self, client, data, message):
        ask = json.loads(message.payload)
        self.asked.append((ask["first"], ask["last"]))
        self.words.append(message.payload)
        if self.silent:
            return
        with self._lock:
            first, last = self._held()
            own = ask["spool"] == self.spool
            begin, end = max(ask["first"], first), min(ask["last"], last)
            parts = []
            for part in range(begin, end + 1 if own else begin, BATCHES_PER_MESSAGE):
                stop = min(part + BATCHES_PER_MESSAGE - 1, end)
                lines = [line for n in range(part, stop + 1) for line in self.batches[n]]
                parts.append((part, stop, lines))
            parts = parts or [(ask["first"], ask["first"] - 1, [])]
            parts[0] = (ask["first"], *parts[0][1:])  # from what was asked, as agents do
            header = {"v": 1, "table": "again", "spool": ask["spool"]}
            header |= {"held_first": first if own else 1, "held_last": last if own else 0}
        topic = self._topic(f"metrics/again/{ask['to']}")
        for part_first, part_last, lines in parts:
            told = header | {"batch_first": part_first, "batch_last": part_last}
            rest = "".join(f"{line}\n" for line in lines).encode()
            told["digest"] = digest_of(rest)
            payload = self.sign(topic, json.dumps(told).encode()) + b"\n" + rest
            if next(self._messages) not in self.forget:
                for _ in range(1 + self.twice):
                    client.publish(topic, payload, 1)
