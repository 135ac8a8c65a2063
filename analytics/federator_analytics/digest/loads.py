"""How full links are, and what makes it so: full directions and heavy flows, the most first."""

from collections.abc import Iterator, Sequence
from typing import Any

from federator_analytics.digest.tables import Row


def fullest_ways(links: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows ``sender``, ``receiver``, ``load`` (a share of 1) and ``capacity`` (bit/s) of LINKS."""
    return sorted(_ways(links), key=lambda row: (-row["load"], row["sender"], row["receiver"]))


def _ways(links: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for link in links:
        for sender, receiver, way in (("a", "b", "ab"), ("b", "a", "ba")):
            # Tables of an earlier version do not tell.
            load, capacity = link.get(f"load_{way}"), link.get(f"capacity_{way}")
            if load is not None and capacity is not None:
                ends = {"sender": link[sender], "receiver": link[receiver]}
                yield {**ends, "load": load, "capacity": capacity}


def heaviest_flows(flows: Sequence[Row]) -> list[Row]:
    """FLOWS, those first that carried most."""
    return sorted(flows, key=lambda row: (-row["bytes"], row["origin"], row["flow"]))
