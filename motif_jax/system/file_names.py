"""Names of files and directories that are made from texts: file systems take 255 bytes."""

from __future__ import annotations

import hashlib
import os

LONGEST = 255  # bytes


def short_name(text: str, longest: int = LONGEST) -> str:
    """The text itself; a longer one is cut and ends with a hash of all of it."""
    data = os.fsencode(text)
    if len(data) <= longest:
        return text
    return f"{data[: longest - 17].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:16]}"
