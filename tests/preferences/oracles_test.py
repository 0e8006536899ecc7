"""The annotators that look at the game's numbers."""

import numpy as np
import pytest
from small_dataset import random_pairs, write_dataset

from motif_jax.preferences.oracles import ask_oracle, check_oracle
from motif_jax.preferences.store import PairDataset
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick


def test_score_and_return(tmp_path):
    write_dataset(tmp_path / "dataset", [(["a", "b"], ["c", "d"])] * 3)
    np.save(tmp_path / "dataset/info/score.npy", np.array([[1, 2], [5, 5], [9, 3]]))
    rewards = np.array([[[1, 1], [0, 1]], [[2, 0], [0, 2]], [[0, 0], [0.5, 0]]], np.float32)  # [3, 2, 2]
    np.save(tmp_path / "dataset/data/rewards.npy", rewards)
    dataset = PairDataset(tmp_path / "dataset")
    assert ask_oracle("score", dataset, np.arange(3), 0).tolist() == [1.0, 0.5, 0.0]
    assert ask_oracle("return", dataset, np.arange(3), 0).tolist() == [0.0, 0.5, 1.0]  # 2 > 1, 2 = 2, 0 < 0.5
    assert ask_oracle("score", dataset, np.array([2]), 0).tolist() == [0.0]


def test_chance_is_the_same_however_the_rows_are_shared(tmp_path):
    dataset = PairDataset(write_dataset(tmp_path / "dataset", random_pairs(1000)))
    whole = ask_oracle("random", dataset, np.arange(1000), 7)
    assert (ask_oracle("random", dataset, np.arange(300, 400), 7) == whole[300:400]).all()
    assert (ask_oracle("random", dataset, np.arange(1000), 8) != whole).any()
    assert 400 < whole.sum() < 600


def test_a_dataset_without_the_numbers_is_refused(tmp_path):
    write_dataset(tmp_path / "dataset", random_pairs(3))
    (tmp_path / "dataset/info/score.npy").unlink()
    (tmp_path / "dataset/data/rewards.npy").unlink()
    dataset = PairDataset(tmp_path / "dataset")
    with pytest.raises(UserError, match=r"no info/score.npy"):
        check_oracle("score", dataset)
    with pytest.raises(UserError, match=r"no data/rewards.npy"):
        check_oracle("return", dataset)
    check_oracle("random", dataset)
