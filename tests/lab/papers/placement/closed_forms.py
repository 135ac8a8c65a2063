"""What a policy costs on average when all draws are independent and popularity is uniform."""

import numpy as np

from lab.papers.placement.policies import Policy


def expected_external(setting):
    """The mean of ``Account.external`` for uniform popularity.

    With m subscribers per topic, e = m (1 - locality) of them outside: somebody outside wants a
    topic with probability ``any``, and ``pairs`` other networks do on average.
    """
    if setting.popularity:
        raise ValueError(f"known for popularity 0 only, got {setting.popularity}")
    topics, others = setting.topics, max(setting.networks - 1, 1)
    m = setting.subscribers * setting.subscriptions / setting.publishers
    inside, outside = m * setting.locality, m * (1 - setting.locality)
    any_ = -np.expm1(-outside)
    pairs = -others * np.expm1(-outside / others)
    unwanted = np.exp(-inside)
    shared = topics * (any_ + pairs)
    return {
        Policy.LP: float(topics * (unwanted + (1 - unwanted) * any_ + outside)),
        Policy.NS: float(topics * (any_ + outside)),
        Policy.EP: float(shared),
        Policy.CENTRALISED: float(topics * (1 + m)),
        Policy.SF: float(shared),
        Policy.EMMA: float(shared),
    }
