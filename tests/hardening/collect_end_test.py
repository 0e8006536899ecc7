"""Collecting is killed at every single change of a file around the moment in which the dataset gets its name."""

import shutil

from conftest import ROOT
from victims import Outcome, Victims

from motif_jax.preferences.store import PairDataset

ARGUMENTS = ("--config=configs/quickstart.py:toy", "--stage=collect", "--config.collect.num_pairs=20",
             "--config.collect.num_workers=0", "--config.env.max_episode_steps=50")  # fmt: skip
LAST_CHANGES = 30  # from the last progress on: the index, what it is made of, how it was made, its name


def names(workdir) -> list[str]:
    return sorted(str(file.relative_to(workdir)) for file in workdir.rglob("*"))


def test_a_kill_around_the_naming_of_a_dataset_leaves_nothing_undone(tmp_path):
    with Victims(ROOT) as victims:

        def collect(workdir, at_change: int = 0) -> Outcome:
            return victims.run(workdir, ARGUMENTS, at_change=at_change)

        for name in ("first", "straight"):  # what Python compiles in the first is compiled for all
            straight = collect(tmp_path / name)
            assert straight.status == 0, straight.output
        wanted = names(tmp_path / "straight")
        assert "dataset/run.json" in wanted
        for change in range(straight.changes, max(0, straight.changes - LAST_CHANGES), -1):
            workdir = tmp_path / "killed"
            assert collect(workdir, change).killed
            again = collect(workdir)
            assert again.status == 0, again.output
            assert names(workdir) == wanted, f"killed before change {change} of {straight.changes}"
            assert len(PairDataset(workdir / "dataset")) == 20
            assert collect(workdir).output == f"collect: complete in '{workdir}', skipped\n"
            shutil.rmtree(workdir)
