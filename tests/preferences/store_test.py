"""Opening datasets: one in the published layout, made here, and everything that can be wrong with one."""

import numpy as np
import pytest
from small_dataset import PUBLISHED_PAIRS, write_published

from motif_jax.captions import encode
from motif_jax.preferences.store import PairDataset
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
N, LLAMA = PUBLISHED_PAIRS, "llama70b_msg_defaultgoal_default"


def test_the_published_layout_opens_as_it_is(tmp_path):
    path, codes = write_published(tmp_path / "motif_dataset", 3)
    dataset = PairDataset(path)
    assert {"message", "blstats", "tty_chars"} <= dataset.data.keys()
    assert (len(dataset), dataset.length) == (N, 3)
    assert dataset.info["character"][0, 0] == "mon-hum-neu-mal"
    assert dataset.preference_names() == [LLAMA, "llama7b_msg_defaultgoal_default"]
    assert np.array_equal(dataset.preference(LLAMA), codes)
    table, ids = dataset.captions()
    assert ids.shape == (N, 2, 3)
    assert len(table) <= 4
    assert np.array_equal(table.messages[ids], dataset.data["message"])


def test_the_index_is_made_once_and_again_when_stale(tmp_path):
    path, _ = write_published(tmp_path, 1)
    PairDataset(path).captions()
    stamp = (path / "index/caption_id.npy").stat().st_mtime_ns
    PairDataset(path).captions()
    assert (path / "index/caption_id.npy").stat().st_mtime_ns == stamp
    messages = np.load(path / "data/message.npy")
    messages[0, 0, 0] = encode("Something else.")
    np.save(path / "data/message.npy", messages)
    table, ids = PairDataset(path).captions()
    assert table.text(int(ids[0, 0, 0])) == "Something else."


@pytest.mark.parametrize(("damage", "message"), [
    (lambda path: np.save(path / "data/message.npy", np.zeros((N, 2, 1, 256), np.float32)), "wrong type float32"),
    (lambda path: (path / "data/message.npy").unlink(), "has no data/message.npy"),
    (lambda path: np.save(path / "data/message.npy", np.zeros((N, 2, 0, 256), np.uint8)), "no data/message.npy with"),
    (lambda path: np.save(path / "info/score.npy", np.zeros(N)), r"info/score.npy .*has shape \(12,\), not \(12, 2\)"),
    (lambda path: np.save(path / f"preference/{LLAMA}.npy", np.full(N, 7, np.int8)), "must hold int8 codes 0 to 3"),
])  # fmt: skip
def test_a_damaged_dataset_is_refused_in_one_sentence(tmp_path, damage, message):
    path, _ = write_published(tmp_path, 1)
    damage(path)
    with pytest.raises(UserError, match=message) as caught:
        PairDataset(path).preference(LLAMA)
    assert "--config.collect.dataset" in str(caught.value)
    assert "\n" not in str(caught.value)
