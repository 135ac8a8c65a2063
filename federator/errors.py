"""All our errors. Each class says how to recover."""


class FederatorError(Exception):
    """Root of the tree. A program that ends with one exits with ``exit_code`` (``sysexits.h``)."""

    exit_code = 69


class DecodeError(FederatorError):
    """A peer or a client sent something malformed: drop it and count."""


class LinkError(FederatorError):
    """A connection failed or was refused: retry with back-off."""


class ConfigError(FederatorError):
    """The operator must mend the configuration: exit with ``exit_code``.

    The text is one line, ``FILE[:LINE]: what: how to mend``.
    """

    def __init__(self, text: str, *, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class InstanceError(ConfigError):
    """A planning instance, or a file to make one from, cannot be used: exit with 65."""

    def __init__(self, text: str) -> None:
        super().__init__(text, exit_code=65)
