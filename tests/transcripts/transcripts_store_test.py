"""Episodes of text on disk: they are read as they were written."""

import re

import numpy as np
import pytest
from talks import random_episode, wordle_game, write

from motif_jax.files import write_json
from motif_jax.structs import Episode, Turn, UserError
from motif_jax.transcripts.store import RECORD, Transcripts, TranscriptWriter

pytestmark = pytest.mark.quick


def test_episodes_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(1)
    episodes = [random_episode(rng, info=True) for _ in range(50)]
    store = write(tmp_path / "transcripts", episodes, source="random")
    assert [store.episode(index) for index in range(len(store))] == episodes
    np.testing.assert_allclose(store.returns(), [episode.episode_return for episode in episodes], atol=1e-6)
    assert store.record["provenance"] == {"source": "random"}
    assert store.record["episodes"] == 50


@pytest.mark.parametrize("episodes", [[Episode((), True)], [Episode((Turn(""),), False), Episode((), False)]])
def test_empty_episodes_and_texts_are_kept(tmp_path, episodes):
    store = write(tmp_path / "transcripts", episodes)
    assert [store.episode(index) for index in range(len(store))] == episodes
    assert store.returns().tolist() == [0.0] * len(episodes)


def test_equal_episodes_have_one_fingerprint_wherever_they_come_from(tmp_path):
    one, two = (write(tmp_path / name, [wordle_game()], source=name) for name in "ab")
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != write(tmp_path / "c", [wordle_game()] * 2).fingerprint


def test_a_writer_that_was_killed_leaves_nothing_in_the_way(tmp_path):
    (tmp_path / "transcripts.partial/info").mkdir(parents=True)
    (tmp_path / "transcripts.partial/info/half.npy").write_text("")
    store = write(tmp_path / "transcripts", [wordle_game()])
    assert not (tmp_path / "transcripts.partial").exists()
    assert not (store.path / "info/half.npy").exists()


@pytest.mark.parametrize(("episode", "sentence"), [
    (Episode((Turn("a", float("nan")),), True), "its reward nan is not finite"),
    (Episode((Turn("a", 1e39),), True), "its reward 1e+39 is not finite"),
    (Episode((Turn("\ud800"),), True), "surrogates not allowed"),
    (Episode((), True, {"A/b": 1.0}), "'A/b' cannot name a metric of an episode"),
])  # fmt: skip
def test_invalid_episodes_are_refused(episode, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        TranscriptWriter().add(episode)


def test_no_store_is_written_over_or_without_episodes(tmp_path):
    write(tmp_path / "transcripts", [wordle_game()])
    with pytest.raises(UserError, match="exists already"):
        write(tmp_path / "transcripts", [wordle_game()])
    with pytest.raises(UserError, match="no episode"):
        TranscriptWriter().write(tmp_path / "other", {})


def test_a_missing_store_and_one_of_another_version_are_refused(tmp_path):
    with pytest.raises(UserError, match="no directory .*with transcripts .*--config.transcripts.path"):
        Transcripts(tmp_path)
    store = write(tmp_path / "transcripts", [wordle_game()])
    write_json(store.path / RECORD, store.record | {"version": 2})
    with pytest.raises(UserError, match="transcripts of another version"):
        Transcripts(store.path)
