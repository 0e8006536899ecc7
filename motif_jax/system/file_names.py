"""Makes names of files and directories from texts."""

from __future__ import annotations

import hashlib
import os

LONGEST = 255  # bytes, the limit of file systems


def short_name(text: str, longest: int = LONGEST) -> str:
    """The text itself; a longer one is cut and ends with a hash of all of it."""
    data = os.fsencode(text)
    if len(data) <= longest:
        return text
    return f"{data[: longest - 17].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:16]}"
