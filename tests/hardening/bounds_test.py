"""Every file that a stage reads is replaced by a pipe, and by a terabyte that was never written: nobody waits for it.

Which files these are is found by Python's audit events. That no file of the package opens files in another way is in
readers_test.py; what users name is in foreign_test.py, and datasets of others are in hostile_dataset_test.py.
"""

import contextlib
import os
import resource
import shutil
import sys
from pathlib import Path

import pytest
from attacks import at_once
from damages import ORBAX, make_whole, run

from motif_jax.structs import UserError

pytestmark = pytest.mark.filterwarnings(ORBAX)
RANDOM = {"evaluate__policy": "random", "evaluate__beside": "", "evaluate__num_workers": 0}
STAGES = {  # what makes a stage that is complete read its files again
    "annotate": {"annotate__ignore_existing": True}, "report": {}, "visualize": {"visualize__policy": "random"},
}  # fmt: skip
READ: list[str] = []


def note(event: str, arguments: tuple) -> None:
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
        READ.append(str(arguments[0]))


@pytest.fixture(scope="module")
def read(tmp_path_factory) -> tuple[Path, dict[str, list[str]]]:
    """A workdir, and the files in it that each stage opens to read."""
    sys.addaudithook(note)
    workdir = shutil.copytree(make_whole(), tmp_path_factory.mktemp("read") / "run")
    run(workdir, "evaluate", **RANDOM, evaluate__episodes=2)
    found = {}
    for stage, values in STAGES.items():
        copy = shutil.copytree(workdir, workdir.with_name(stage))
        del READ[:]
        run(copy, stage, **values)
        paths = {Path(os.path.abspath(path)) for path in READ}
        found[stage] = sorted(str(path.relative_to(copy)) for path in paths if path.is_relative_to(copy))
        found[stage] = [name for name in found[stage] if (workdir / name).is_file()]
    return workdir, found


def make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def make_hollow(file: Path) -> None:
    os.truncate(file, 2**40)


@contextlib.contextmanager
def little_memory():
    """Nothing is read as a whole that has more than some gigabytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**32, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("attack", [make_pipe, make_hollow])
@pytest.mark.parametrize("stage", STAGES)
def test_nobody_waits_for_a_file_that_never_ends(read, tmp_path, stage, attack):
    made, names = read
    assert names[stage]
    refused = {}
    workdir = shutil.copytree(made, tmp_path / "run")
    for name in names[stage]:
        attack(workdir / name)
        try:
            with at_once(), little_memory():
                run(workdir, stage, **STAGES[stage])
        except UserError as error:
            refused[name] = str(error)
        (workdir / name).unlink()
        shutil.copy2(made / name, workdir / name)
    print(f"{stage}: refused, of {len(names[stage])} files: {', '.join(refused)}")
    assert {"annotate": "dataset/data/message.npy", "report": "policy/metrics.jsonl",
            "visualize": "evaluate/random/summary.json"}[stage] in refused  # fmt: skip
    assert all(Path(name).name in said and "\n" not in said for name, said in refused.items()), refused
