"""A ledger to tell stories to: one publisher at broker 1, subscribers at 2 and 3."""

from lab.chaos.layout import Layout, Subscriber
from lab.chaos.ledger import Ledger

TOPIC = "chaos/1/temp"
NEAR, FAR = "all-2", "all-3"


class Story:
    """Times are given as they pass; every publication is acknowledged at once.

    ``mixed``: these are of QoS 1 and 2, and so are the subscribers: 1 near, 2 far.
    """

    def __init__(self, *, mixed=False):
        near = Subscriber(NEAR, 2, "chaos/#")
        far = Subscriber(FAR, 3, "chaos/+/temp", qos=2 if mixed else 1)
        self.ledger = Ledger(Layout((1,), (2, 3), (), {TOPIC: 1}, (near, far)), mixed=mixed)
        self.now_s = 1.0
        self.ledger.begin()
        for name in (NEAR, FAR):
            self.ledger.subscribed(name, self.now_s)

    def wait(self, seconds):
        self.now_s += seconds

    def send(self, *, acknowledged=True):
        self.wait(0.1)
        number = self.ledger.attempted(TOPIC, self.now_s)
        if acknowledged:
            self.ledger.acknowledged(TOPIC, number)
        return number

    def come(self, number, *names, topic=TOPIC, redelivery=False):
        self.wait(0.1)
        for name in names or (NEAR, FAR):
            self.ledger.arrived(name, topic, number, redelivery=redelivery, now_s=self.now_s)

    def die(self, broker, *, keeps=False):
        self.wait(0.1)
        self.ledger.died(broker, self.now_s, keeps=keeps)

    def back(self, broker, *subscribers):
        self.wait(0.1)
        self.ledger.returns(broker, self.now_s)
        self.wait(0.1)
        for name in subscribers:
            self.ledger.subscribed(name, self.now_s)

    def interrupt(self, broker, seconds):
        self.ledger.interrupted(broker, self.now_s)
        self.wait(seconds)
        self.ledger.goes_on(broker, self.now_s)

    def fault(self, name):
        self.wait(0.1)
        self.ledger.enter(name, self.now_s)

    def total(self, what):
        return sum(getattr(counts, what) for counts in self.ledger.counts().values())
