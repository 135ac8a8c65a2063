"""Fields that messages share, with what is checked of each on receipt."""

from typing import Annotated

import msgspec

from federator.protocol.types import BROKER_ID_MAX, EPOCH_MAX, BrokerId, Epoch

Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
EpochField = Annotated[Epoch, msgspec.Meta(ge=0, le=EPOCH_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=65_535)]
"""A topic, a filter or a client id."""

Token = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
"""A name that may be a level of a topic."""
