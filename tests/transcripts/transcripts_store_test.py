"""Episodes of text on disk: they come back as they were, and nothing else is taken for them."""

import hashlib

import numpy as np
import pytest
from conftest import refusal
from talks import random_episode, wordle_game, write

from motif_jax.files import read_json, write_array, write_json
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.store import RECORD, Transcripts

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(1)


@pytest.mark.parametrize("episodes", [
    [random_episode(RNG, info=True) for _ in range(50)], [Episode((), True)],
    [Episode((Turn(""),), False), Episode((), False)],
], ids=len)  # fmt: skip
def test_episodes_come_back_as_they_were(tmp_path, episodes):
    store = write(tmp_path / "transcripts", episodes, source="random")
    assert [store.episode(index) for index in range(len(store))] == episodes
    np.testing.assert_allclose(store.returns(), [episode.episode_return for episode in episodes], atol=1e-6)
    assert store.record["provenance"] == {"source": "random"}
    assert store.record["episodes"] == len(episodes)


def test_equal_episodes_have_one_fingerprint_wherever_they_come_from(tmp_path):
    one, two = (write(tmp_path / name, [wordle_game()], source=name) for name in "ab")
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != write(tmp_path / "c", [wordle_game()] * 2).fingerprint


def test_a_writer_that_was_killed_leaves_nothing_in_the_way_and_no_store_is_written_over(tmp_path):
    (tmp_path / "transcripts.partial/info").mkdir(parents=True)
    (tmp_path / "transcripts.partial/info/half.npy").write_text("")
    store = write(tmp_path / "transcripts", [wordle_game()])
    assert not (tmp_path / "transcripts.partial").exists()
    assert not (store.path / "info/half.npy").exists()
    with pytest.raises(OSError, match="not empty"):
        write(tmp_path / "transcripts", [wordle_game()])


# ---- what is no store


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(("name", "change", "said"), [
    ("turns/text", put(0, 99), "its arrays do not belong together"),
    ("turns/text", lambda array: array.astype(np.int64), "its form or its checksum differs"),
    ("turns/reward", put(0, np.inf), "its arrays do not belong together"),
    ("episodes/ends", put(0, 3), "its arrays do not belong together"),
    ("texts/bytes", put(0, 255), "can't decode byte 0xff"),
])  # fmt: skip
def test_arrays_that_do_not_belong_together_are_refused(tmp_path, name, change, said):
    """Their checksums fit."""
    path = write(tmp_path / "transcripts", [wordle_game()]).path
    record, array = read_json(path / RECORD), change(np.load(path / f"{name}.npy"))
    write_array(path / f"{name}.npy", array)
    record["sha256"][name] = hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
    write_json(path / RECORD, record)
    refusal(lambda: Transcripts(path), "--config.transcripts.path", said)


@pytest.mark.parametrize(("is_link", "said"), [(True, "leads out"), (False, "it has more than 16,777,216 bytes")])
def test_records_that_lead_elsewhere_or_are_huge_are_refused(tmp_path, is_link, said):
    record = write(tmp_path / "transcripts", [wordle_game()]).path / RECORD
    if is_link:
        record.rename(tmp_path / "elsewhere")
        record.symlink_to(tmp_path / "elsewhere")
    else:
        record.write_text(record.read_text() + " " * 2**24)
    refusal(lambda: Transcripts(tmp_path / "transcripts"), "--config.transcripts.path", said)
