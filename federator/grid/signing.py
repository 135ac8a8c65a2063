"""Keys for experiments: a federation key of one run, and files as an agent is told of them."""

import time
from pathlib import Path
from typing import Any, Final

from federator.protocol.trust.papers import Paper, write_paper
from federator.protocol.types import BrokerId
from federator.runtime.key_office import KeyOffice

DAYS: Final = 1


class KeyFolder:
    """Key files in ``folder``, which is made when missing."""

    def __init__(self, folder: Path, federation: str) -> None:
        self._folder = folder
        self._office = KeyOffice.new(federation)
        folder.mkdir(parents=True, exist_ok=True)
        self._public = self._put("federation.pub", self._office.public)

    def section(self, broker: BrokerId) -> dict[str, Any]:
        """``[keys]`` for the agent of ``broker``, whose keys are made now."""
        papers, _ = self._office.issue(broker, days=DAYS, now_s=int(time.time()))
        agent_file = self._put(f"agent-{broker}.key", papers)
        return {"agent_file": str(agent_file), "federation_files": [str(self._public)]}

    def _put(self, name: str, paper: Paper) -> Path:
        path = (self._folder / name).absolute()
        path.touch(mode=0o600)
        path.write_bytes(write_paper(paper))
        return path
