"""Where processes listen for connections."""

import os
from pathlib import Path

from conftest import parents


def tree(process: int) -> set[int]:
    found, known = {process}, parents()
    while more := {child for child, parent in known.items() if parent in found} - found:
        found |= more
    return found


def listening(process: int) -> set[str]:
    """Addresses (in hexadecimal) on which the sockets of a process and of its descendants listen."""
    sockets = set()
    for member in tree(process):
        try:
            names = [os.readlink(file) for file in Path(f"/proc/{member}/fd").iterdir()]
        except OSError:  # it has just ended
            continue
        sockets |= {name.removeprefix("socket:[").removesuffix("]") for name in names if name.startswith("socket:")}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            # 0A: a socket that listens, as the kernel writes it
            if inode in sockets and (state == "0A" or table.startswith("udp")):
                found.add(local.partition(":")[0])
    return found
