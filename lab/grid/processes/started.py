"""What is started when a block begins, and stopped when it ends or could not begin."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Started(ABC):
    """An async context manager over ``start`` and ``stop``."""

    @abstractmethod
    async def start(self) -> None:
        """Start all of it. Raises ``LinkError``: it did not start."""

    @abstractmethod
    async def stop(self) -> object:
        """End what was started, all of it or a part."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
