"""One module per stage, each with one `run(config, workdir)` that reads from top to bottom and wires the rooms.

A stage also has `check(config)`, which refuses bad values before anything is started; `is_complete(config, workdir)`;
`artefacts(workdir)`, the directories that belong to one config, each with the config that made it; `MATERIAL`, the
config keys that may not change once it has begun; `shared(config)`, whether other jobs may work in the workdir
meanwhile, or None where it needs no lock at all; and `loads_jax(config)`. `WRITES` and `MEMORY` are the flags that
decide how much the stage writes, or where else than in the workdir, and how much memory, how many processes and files
it takes: what to change when the system refuses (system_errors.py).
"""

NAMES = ("collect", "annotate", "train_reward", "train_policy", "evaluate", "report", "visualize", "benchmark")
