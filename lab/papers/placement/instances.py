"""The placement paper's random instances: Table 3, and what the paper leaves out, as parameters.

Not given are the mesh, the traffic of clients, users and services, and how container sizes vary.
Here: a random tree with extra links; all traffic uniform around its mean; every service uses the
same number of topics, chosen at random, or where that is no whole number the next lower or higher
by chance, so that the average is as stated. When a load is given, capacities are scaled
so that the whole workload is that share of them.

Source: Fawwaz 2022, 5.2, Table 3; docs/placement.md 3.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lab.frame.settings import setting
from lab.papers.placement.hops import Matrix, hops_of
from lab.papers.placement.instance import Instance

BROKER_WORK = 10.0
SERVICE_WORK = (1.0, 50.0)
DEVICE_POWER = (0.13, 0.25)
NETWORK_POWER = 1.37e-2
CAPACITY = (20_000.0, 40_000.0)
"""Table 3."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a sweep.

    Defaults of traffic are the ones under which the paper's ratios come out (with the narrower
    spread of ``paper_sweeps``); ``network_scale`` 1 is Table 3 as printed, under which they cannot:
    a hop then costs a hundredth of the computing.
    """

    devices: int = setting(6, "", 1, 2_000)  # D
    topics: int = setting(10, "", 1, 10_000)  # T
    services: int = setting(6, "", 0, 10_000)  # S
    utilisation: float = setting(0.2, "", 0, 1)  # share of topics that a service uses on average
    # Workload as a share of all capacities; None leaves Table 3's.
    load: float | None = setting(None, "[0.7]", 0.01, 1)
    links: float = 0.5  # links beyond a tree, per device
    topic_mbps: float = 30.0  # mean traffic of all clients with one topic
    user_mbps: float = 10.0  # mean traffic of all users with one service
    shared_mbps: float = 50.0  # mean traffic of one topic with one service that uses it
    spread: float = 0.75  # of all traffic around its mean, 0 to 1
    network_scale: float = setting(200.0, "Factor on the paper's power per traffic and hop.", 0)
    service_work: tuple[float, float] = SERVICE_WORK  # least and most workload per Mbps

    @property
    def topics_used(self) -> float:
        """Topics that a service uses on average."""
        return self.utilisation * self.topics

    @property
    def expected_work(self) -> float:
        shared = self.services * self.topics_used * self.shared_mbps
        brokers = BROKER_WORK * (self.topics * self.topic_mbps + shared)
        return brokers + sum(self.service_work) / 2 * (shared + self.services * self.user_mbps)


def draw(setting: Setting, *, seed: int) -> Instance:
    rng = np.random.default_rng(seed)
    devices, topics, services = setting.devices, setting.topics, setting.services
    uses = rng.permuted(np.arange(topics * services).reshape(services, topics), axis=1)
    # Drawn apart, so that the other draws are the same for every utilisation.
    used = np.floor(setting.topics_used + np.random.default_rng([seed, 2]).random((services, 1)))
    uses = (uses % max(topics, 1) < used).T
    shared = uses * _around(rng, setting, setting.shared_mbps, (topics, services))
    instance = Instance(
        capacity=rng.uniform(*CAPACITY, devices),
        device_power=rng.uniform(*DEVICE_POWER, devices),
        network_power=NETWORK_POWER * setting.network_scale,
        hops=hops_of(_mesh(rng, devices, setting.links)),
        topic_traffic=_around(rng, setting, setting.topic_mbps / devices, (topics, devices)),
        service_traffic=_around(rng, setting, setting.user_mbps / devices, (services, devices)),
        shared_traffic=shared,
        broker_work=BROKER_WORK,
        service_work=rng.uniform(*setting.service_work, services),
        user_work=rng.uniform(*setting.service_work, services),
    )
    if setting.load is None:
        return instance
    scale = instance.work.sum() / (setting.load * instance.capacity.sum())
    return replace(instance, capacity=instance.capacity * scale)


def _mesh(rng: np.random.Generator, devices: int, extra: float) -> npt.NDArray[np.bool_]:
    linked = np.zeros((devices, devices), dtype=bool)
    for device in range(1, devices):
        linked[device, rng.integers(device)] = True
    for _ in range(round(extra * devices) if devices > 1 else 0):
        a, b = rng.choice(devices, 2, replace=False)
        linked[a, b] = True
    return linked | linked.T


def _around(
    rng: np.random.Generator, setting: Setting, mean: float, shape: tuple[int, int]
) -> Matrix:
    return rng.uniform(mean * (1 - setting.spread), mean * (1 + setting.spread), shape)
