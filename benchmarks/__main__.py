"""`python -m benchmarks`: the stage `benchmark`, with `--parts` for what is measured.

  python -m benchmarks                                 all parts, with configs/motif.py, in runs/benchmark
  python -m benchmarks --parts=games,reward            some parts of: games, reward, policy, language
  python -m benchmarks --parts=peers                   other libraries, which it installs below the workdir
  python -m benchmarks --parts=offline --config=FILE --workdir=DIR --config.benchmark.repeats=5

--parts also takes single measurements: env, texts, annotation, online, questions, limits, options, offline, peers,
numerics, profile, train.
Other flags are those of `python -m motif_jax.launch`.
"""

from __future__ import annotations

from motif_jax.system import startup

if __name__ == "__main__":
    startup.set_up_process()  # before the imports that take long

import argparse
import sys

from benchmarks import MEASUREMENTS, PARTS
from motif_jax import launch
from motif_jax.structs import UserError


def arguments(given: list[str]) -> list[str]:
    """The arguments of `motif_jax.launch` for those of this program."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--parts", default=",".join(PARTS))
    flags, rest = parser.parse_known_args(given)
    chosen: list[str] = []
    for name in flags.parts.split(","):
        if name not in PARTS and name not in MEASUREMENTS:
            raise UserError(f"unknown part {name!r} (--parts): choose from {', '.join(PARTS)}")
        chosen += PARTS.get(name, (name,))
    parts = f"--config.benchmark.parts={tuple(dict.fromkeys(chosen))!r}"
    return ["--config=motif", "--workdir=runs/benchmark", parts, *rest, "--stage=benchmark"]


def main() -> int:
    """Runs the program; returns the exit status."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    try:
        return launch.main([sys.argv[0], *arguments(sys.argv[1:])])
    except UserError as error:
        startup.say(error)
        return 2


if __name__ == "__main__":
    launch.define_flags()
    sys.exit(startup.run_program(main))
