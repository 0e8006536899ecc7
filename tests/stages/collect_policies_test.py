import shutil

import numpy as np
import pytest
from conftest import get_config, refusal, run_stage
from toy_policies import TASK, policies

from motif_jax.envs.toy import STAIRS
from motif_jax.files import read_json
from motif_jax.preferences.store import PairDataset
from motif_jax.stages import collect

FLAG = r"--config\.collect\.policies"


def run(workdir, **values):
    config = get_config(argument=TASK)
    config.collect.update({"num_pairs": 500, "num_workers": 0, "games_per_worker": 8, "rollout_length": 32} | values)
    run_stage(collect, config, workdir)
    return PairDataset(workdir / "dataset"), read_json(workdir / "dataset/dataset.json")


def share_of_stairs(dataset) -> float:
    table, ids = dataset.captions()
    texts = [table.text(number) for number in range(len(table))]
    return float((ids == texts.index(STAIRS.decode())).mean())  # each episode has one at most


def test_moments_come_from_the_policies_that_were_named(tmp_path):
    mixture = f"{policies().good}:3,{policies().weak / 'policy'}@all"
    dataset, record = run(tmp_path / "mixture", policies=mixture, num_workers=1)
    assert record["collector"] == "policies"
    assert record["policies"] == [
        {"path": str(policies().good / "policy/checkpoints"), "step": 7680, "share": 0.75},
        {"path": str(policies().weak / "policy/checkpoints"), "step": 64, "share": 0.125},
        {"path": str(policies().weak / "policy/checkpoints"), "step": 128, "share": 0.125},
    ]
    # 4 groups are the fewest that 8 games make for 3 policies; each has one, and the one to spare goes to the first.
    assert read_json(tmp_path / "mixture/dataset/run.json")["groups_of_policies"] == [2, 1, 1]
    # Perfect play finds the stairs every 2.5 steps. The trained policy nearly does, and plays half of all steps. Random
    # play finds them in less than 3 of 100.
    assert share_of_stairs(dataset) > 0.05


def test_a_killed_run_resumes_with_the_same_checkpoints(tmp_path, monkeypatch):
    """Killed, while training goes on: the dataset is of one mixture all the same."""
    shutil.copytree(policies().weak / "policy", tmp_path / "policy")

    def committed():
        return [*(tmp_path / "dataset.pieces").glob("*.npz")]

    class Killed(collect.Pieces):
        def take(self, *rollout):
            if len(committed()) > 1:
                raise KeyboardInterrupt
            return super().take(*rollout)

    with monkeypatch.context() as patched:
        patched.setattr(collect, "Pieces", Killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, policies=str(tmp_path), commit_every_s=0.01)
    assert len(committed()) == 2
    shutil.copytree(tmp_path / "policy/checkpoints/128", tmp_path / "policy/checkpoints/192")
    dataset, record = run(tmp_path, policies=str(tmp_path))
    assert [policy["step"] for policy in record["policies"]] == [128]
    moments = np.stack([dataset.info["episode"], dataset.info["start"]], -1).reshape(-1, 2)
    assert len(np.unique(moments, axis=0)) == 1000


@pytest.mark.parametrize(("named", "sentence"), [
    ("/nowhere", f"there is no policy in '/nowhere'.* \\({FLAG}\\)"),
    ("GOOD@7", f"has no checkpoint '7' \\({FLAG}\\); it has 3840, 7680"),
    ("GOOD@all:2,WEAK@all", f"4 policies need a group of games each, but at most 3 are possible \\({FLAG}"),
])  # fmt: skip
def test_missing_policies_are_refused_before_anything_is_made(tmp_path, named, sentence):
    named = named.replace("GOOD", str(policies().good)).replace("WEAK", str(policies().weak))
    refusal(lambda: run(tmp_path, policies=named, games_per_worker=3), match=sentence)
    assert not list(tmp_path.iterdir())
