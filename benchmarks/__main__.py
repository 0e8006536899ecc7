"""`python -m benchmarks`: measures this machine.

  python -m benchmarks                                 most parts, with configs/motif.py, in runs/benchmark
  python -m benchmarks --parts=env,reward              some parts
  python -m benchmarks --parts=peers                   other libraries, which it installs below the workdir
  python -m benchmarks --parts=offline --config=FILE --workdir=DIR --repeats=5

Other flags are those of `python -m motif_jax.launch`, and have its values: --config.policy.batch_size=4096
Lists have commas between their values.
"""

from __future__ import annotations

from motif_jax.system import startup

if __name__ == "__main__":
    startup.set_up_process()  # before the imports that take long

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks
from motif_jax import launch
from motif_jax.config.table import check_values, table_of, tables_of, typed
from motif_jax.files import write_config
from motif_jax.run import CONFIG, Lock, Run, read_record
from motif_jax.structs import UserError
from motif_jax.system.errors import Limits, explained

TABLE = table_of(benchmarks.Benchmark)


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The values of the flags in TABLE, `--NAME=VALUE`, and the other words."""
    own, rest = {}, []
    for word in words:
        match = re.fullmatch(r"--?(\w+)=(.*)", word, re.DOTALL)
        if match and match[1] in TABLE:
            own[match[1]] = match[2]
        else:
            rest.append(word)
    return own, rest


def read(own: Mapping[str, str]) -> benchmarks.Benchmark:
    """The values of the flags; raises UserError for one that cannot be."""
    values: dict[str, Any] = {}
    for name, text in own.items():
        like = TABLE[name].default
        if isinstance(like, tuple):
            values[name] = tuple(converted(word, like[0]) for word in text.split(","))
        else:
            values[name] = converted(text, like)
        TABLE[name].kind.check(name, f"--{name}", values[name])
    return benchmarks.Benchmark(**values)


def converted(text: str, like: Any) -> Any:
    """The text as a value of this type, or as it is, which its kind refuses then."""
    try:
        return type(like)(text)
    except ValueError:
        return text


def measure(own: Mapping[str, str], values: Mapping[str, Any], workdir: Path) -> None:
    """Measures what the flags ask for, in a locked workdir."""
    flags = launch.FLAGS
    if flags.stage or flags.sweep or flags.dry_run:
        raise UserError("this measures a config as it is: leave out --stage, --sweep and --dry_run")
    given = {**values, "benchmark": vars(read(own))}
    check_values(given, tables_of(benchmarks.BenchmarkConfig))
    config = typed(benchmarks.BenchmarkConfig, given)
    startup.divide_cpu(config.cpu_devices)
    benchmarks.check(config, workdir)
    if (workdir / CONFIG).exists():
        read_record(workdir / CONFIG)  # whose layout may be another one
    workdir.mkdir(parents=True, exist_ok=True)
    limits = Limits("--pairs", "--pairs, --parts", "--config.policy.batch_size, .num_minibatches, .network")
    with Run(workdir).lock([Lock.EXCLUSIVE]), explained(workdir, "benchmark", limits):
        write_config(workdir, values)
        benchmarks.run(config, workdir)


def main() -> int:
    """Runs the program; returns the exit status."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        for name, one in TABLE.items():
            default = ",".join(map(str, one.default)) if isinstance(one.default, tuple) else one.default
            print(f"--{name}={default}\n    {one.about}; {getattr(one.kind, 'of', one.kind)}")
        return 0
    own, rest = split(sys.argv[1:])
    return launch.main([sys.argv[0], "--config=motif", "--workdir=runs/benchmark", *rest], partial(measure, own))


if __name__ == "__main__":
    launch.define_flags()
    sys.exit(startup.run_program(main))
