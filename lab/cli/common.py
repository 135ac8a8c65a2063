"""What the simulator's verbs print with."""

from lab.frame.printing import Bars, tell

__all__ = ["Bars", "tell"]
