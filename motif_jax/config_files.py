"""The config files that come with the program: `configs/`, which installed copies carry inside of the package."""

from __future__ import annotations

import os
from pathlib import Path

SHIPPED = Path(__file__).parent / "configs"  # in a checkout, a link to the directory at its top


def shipped_names() -> list[str]:
    """What `--config` takes without a path."""
    return sorted(file.stem for file in SHIPPED.glob("*.py"))


def find_config(name: str) -> str:
    """The path that a name stands for: "motif" -> ".../configs/motif.py". A file of that name goes first."""
    if name in shipped_names() and not os.path.isfile(name):
        return str(SHIPPED / f"{name}.py")
    return name
