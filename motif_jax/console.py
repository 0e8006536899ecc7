"""What a terminal is shown of texts that others wrote: servers, datasets, files, command lines."""

from __future__ import annotations

LIMIT = 300  # characters of one foreign text in a message


def clean(text: object, limit: int = LIMIT) -> str:
    """One harmless line: control characters and what is no valid text are written as escapes, the middle is left out.

    Args:
      text: anything that comes from outside, or a message that quotes such things.
      limit: how many characters the line may have at most.
    """
    whole = str(text)
    if len(whole) > limit:
        half = (limit - 5) // 2
        whole = f"{whole[:half]} ... {whole[-half:]}"
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in whole)
