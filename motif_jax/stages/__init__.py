"""One module per stage, each with one `run(config, workdir)` that reads from top to bottom and wires the rooms.

A stage also has `check(config)`, which refuses bad values before anything is started; `artefacts(workdir)`, the
directories that it makes, each with the config that made it; `MATERIAL`, the config keys that may not change once it
has begun; and `is_complete(workdir)`.
"""

NAMES = ("collect", "benchmark")
