"""Read by the Python that builds PufferLib 3.0.0 without its own games, whose build downloads raylib (NO_OCEAN=1).

Its setup.py then reads a name that it has not defined.
"""

import builtins

builtins.c_extension_paths = []  # type: ignore[attr-defined]
