"""Every error that analytics raises itself. Each class says who mends it and how a program exits.

Exit codes are those of ``sysexits.h``. A text is one line: what was found, and what is wanted.
"""

from federator.errors import FederatorError


class AnalyticsError(FederatorError):
    """Root of the tree. Whoever raises it names the file, the key or the broker."""

    exit_code = 70


class UsageError(AnalyticsError):
    """Options that contradict each other or are out of range: the caller mends the call."""

    exit_code = 64


class InputError(AnalyticsError):
    """What was to be read holds nothing that can be used: the operator mends the data."""

    exit_code = 65


class InputMissingError(AnalyticsError):
    """What was to be read is not there."""

    exit_code = 66


class UnavailableError(AnalyticsError):
    """Something needed does not answer or is not installed: Java, Spark, a master, a broker."""

    exit_code = 69


class CannotWriteError(AnalyticsError):
    """The output cannot be made or written: the operator mends the folder or its permissions."""

    exit_code = 73


class InUseError(AnalyticsError):
    """Another program writes to the output: it will end, or another folder is named."""

    exit_code = 75


class DataLossError(InputError):
    """A checkpoint promises records that nobody holds any more."""
