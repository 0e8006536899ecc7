"""Every file that a stage reads is replaced by a pipe, and by a terabyte that was never written: nobody waits for it.

Which files these are is found by Python's audit events. That no file of the package opens files in another way is in
readers_test.py; what users name is in foreign_test.py, datasets of others are in hostile_dataset_test.py, and Orbax's
files in checkpoints_corruption_test.py.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from attacks import at_once, little_memory
from damages import ORBAX, make_whole, run

from motif_jax.structs import UserError

pytestmark = pytest.mark.filterwarnings(ORBAX)
RANDOM = {"evaluate__policy": "random", "evaluate__beside": "", "evaluate__num_workers": 0}
STAGES = {  # what makes a stage that is complete read its files again; and a file that it must refuse
    "annotate": ({"annotate__ignore_existing": True}, "dataset/data/message.npy"),
    "report": ({}, "policy/metrics.jsonl"),
    "visualize": ({"visualize__policy": "random"}, "evaluate/random/summary.json"),
    "collect": ({}, "dataset/config.json"),
    "train_reward": ({}, "reward/config.json"),
    "train_policy": ({"policy__train_for_env_steps": 256}, "policy/config.json"),
    "evaluate": (RANDOM | {"evaluate__episodes": 2}, "evaluate/random/summary.json"),
}
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
    for stage, (values, _) in STAGES.items():
        copy = shutil.copytree(workdir, workdir.with_name(stage))
        del READ[:]
        run(copy, stage, **values)
        paths = {Path(os.path.abspath(path)) for path in READ}
        names = {str(path.relative_to(copy)) for path in paths if path.is_relative_to(copy)}
        found[stage] = sorted(name for name in names if (workdir / name).is_file() and "/checkpoints/" not in name)
    return workdir, found


def make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def make_hollow(file: Path) -> None:
    os.truncate(file, 2**40)


@pytest.mark.parametrize("attack", [make_pipe, make_hollow])
@pytest.mark.parametrize("stage", STAGES)
def test_nobody_waits_for_a_file_that_never_ends(read, tmp_path, stage, attack):
    made, names = read
    values, expected = STAGES[stage]
    refused = {}
    workdir = shutil.copytree(made, tmp_path / "run")
    for name in names[stage]:
        attack(workdir / name)
        try:
            with at_once(), little_memory(4):
                run(workdir, stage, **values)
        except UserError as error:
            refused[name] = str(error)
        (workdir / name).unlink()
        shutil.copy2(made / name, workdir / name)
    print(f"{stage}: refused, of {len(names[stage])} files: {', '.join(refused)}")
    assert expected in refused
    assert all(Path(name).name in said and "\n" not in said for name, said in refused.items()), refused
