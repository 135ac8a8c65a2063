"""Key files that an operator replaces under way."""

import os
import time

import structlog

from federator.protocol.trust.key_files import RevocationFile, write_key_file
from federator.runtime.trust.key_maker import KeyMaker

FEDERATION = "fed"


class KeyFolder:
    """The key files of an agent, or of another program.

    Attributes:
        maker: Whose key is trusted, and who issued the certificate, at first.
        holder: Who bears the certificate: a broker's number, or a role and a name.
    """

    def __init__(self, path, **holder):
        self.path = path
        self.maker = KeyMaker.new(FEDERATION)
        self.holder = {"broker": 0} | holder
        self._writes = 0
        self.trusts(self.maker)
        self.issued_by(self.maker)

    def put(self, name, content):
        """Replace a file; its time says that it is another one, however fast we are."""
        path = self.path / name
        path.write_bytes(content)
        path.chmod(0o600)
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def trusts(self, maker):
        self.put("federation.pub", write_key_file(maker.public))

    def issued_by(self, maker, **other):
        """Have our own key from ``maker``."""
        keys, _ = maker.issue(
            (self.holder | other)["broker"],
            days=30,
            now_s=int(time.time()),
            **{name: text for name, text in (self.holder | other).items() if name != "broker"},
        )
        self.put("own.key", write_key_file(keys))
        return keys

    def revoked_by(self, maker, *serials, number=1):
        listed = maker.revoke(serials or [bytes(8)], number=number)
        file = RevocationFile(federation=FEDERATION, revocations=listed)
        self.put("revocations", write_key_file(file))
        return listed


def followed(files):
    """Let ``files`` be followed; the names of what is logged."""
    with structlog.testing.capture_logs() as logs:
        files.follow_files()
    return [line["event"] for line in logs]
