"""Safe printing of texts from outside: servers, datasets, files, command lines; and hints for unknown names.

Everything that the program prints goes through `print_line`, except the help text and full-screen drawing. Errors of
the standard streams have the stream's name as their `filename`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import TextIO

OUTPUTS = ("standard output", "standard error")  # names of the streams in errors
LIMIT = 300  # characters of one foreign text in a message
LONGEST_LINE = 2000  # characters of a line with everything that is quoted in it


def clean(text: object, limit: int = LIMIT) -> str:
    """One safe line: control characters and invalid text are written as escapes, the middle of a long text is left out.

    `limit`: the most characters that the line may have, before escapes.
    """
    whole = str(text)
    if len(whole) > limit:
        half = (limit - 5) // 2
        whole = f"{whole[:half]} ... {whole[-half:]}"
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in whole)


def suggest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """How to correct an unknown name: the nearest of `names`, or else all of them, or `otherwise`."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise or f"choose from {', '.join(names)}"


def print_line(text: object, file: TextIO | None = None) -> None:
    """Prints one safe line (see `clean`); to standard output, or to another `file`."""
    write(f"{clean(text, LONGEST_LINE)}\n", file)


def write(text: str, file: TextIO | None = None) -> None:
    """Writes a text of this program as it is, and flushes."""
    stream = sys.stdout if file is None else file
    try:
        if text:  # else writing could be a system call, which can fail
            stream.write(text)
        stream.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, OUTPUTS[file is sys.stderr]) from None


def print_lines(text: str, file: TextIO | None = None) -> None:
    """Prints a text of several lines, each made safe by `clean`; to standard output, or to another `file`."""
    for line in text.split("\n"):
        print_line(line, file)
