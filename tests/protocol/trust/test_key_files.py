"""What is said of a file that should be one of keys."""

import pytest

from federator.errors import DecodeError
from federator.protocol.trust.key_files import read_any_key_file


@pytest.mark.parametrize("text", [b"{}", b'{"name": "x"}', b"[]", b"3"])
def test_json_that_is_no_key_file_is_called_so(text):
    with pytest.raises(DecodeError, match=r"^no key file: `federator keys` makes them$"):
        read_any_key_file(text)


@pytest.mark.parametrize("text", [b"", b"\xff", b"-----BEGIN", b"[" * 4_000])
def test_what_is_no_json_is_no_key_file(text):
    with pytest.raises(DecodeError, match=r"^no key file: "):
        read_any_key_file(text)
