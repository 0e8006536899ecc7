"""The reward by closeness of words."""

from types import SimpleNamespace

import pytest
from conftest import check_stage, get_config, refusal, viewed
from finite_parameters_test import check_door
from online_parts_test import batch_of, check_goals
from readers_test import STRANGE, check_reader

from motif_jax.contrib.words.source import WordsSource, read_vectors
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.source import Setting
from motif_jax.stages import train_policy


def make_words(tmp_path, words, goal="defaultgoal", **online):
    config = get_config(argument="score", policy__synchronous=True, annotate__goal=goal)
    config.policy.online.update({"message": "lt_cnn_small", "kind": "words"} | online)
    config.words.update(words)
    return OnlineSource.make(Setting(viewed(config), tmp_path, {}))


def test_goals_are_sentences(tmp_path):
    (tmp_path / "tiny.vec").write_text("gold 1 0\nfight 0 1\n")
    words = {"vectors": str(tmp_path / "tiny.vec"), "floor": 0.1}
    check_goals(lambda **values: make_words(tmp_path, words, **values), "Collect gold", "Fight well")


@pytest.mark.differs(
    "oni",
    there="texts are split at white space alone and get fastText's token `</s>`; unknown words have subwords",
    here="words are looked up without punctuation, and in lower case if the file lacks them as written; "
    "unknown words are ignored",
)
def test_words_reward_closeness_to_the_goal(tmp_path):
    (tmp_path / "tiny.vec").write_text("3 2\nnewt 1 0\ngold 0 1\nkill 1 1\n")
    goals = "My gold is all@0,kill the newt now@10"
    words = {"vectors": str(tmp_path / "tiny.vec"), "floor": 0.1}
    source = make_words(tmp_path, words, goals=goals)
    assert isinstance(source, WordsSource)
    shown = ["You kill the newt!", "Gold, gold!", "kill gold", "It's a wall.", "", "A newt."]
    # The goal is (0, 1); the messages are (2, 1), (0, 2), (1, 2), nothing, nothing, (1, 0).
    expected = [1 / 5**0.5, 1.0, 2 / 5**0.5, 0.0, 0.0, 0.0]
    assert source.rewards(batch_of(*shown))[0].tolist() == pytest.approx(expected)
    again = WordsSource.rebuild(source.arrays(), source.facts())  # without the file
    assert again.rewards(batch_of(*shown))[0].tolist() == pytest.approx(expected)
    assert again.about() == source.about()
    source.advance(SimpleNamespace(steps=10), None)  # now the goal is (2, 1)
    expected = [1.0, 1 / 5**0.5, 4 / 5, 0.0, 0.0, 2 / 5**0.5]
    assert source.rewards(batch_of(*shown))[0].tolist() == pytest.approx(expected)
    later = make_words(tmp_path, words, goals=goals)
    later.restore(source.arrays(), source.facts())
    assert later.rewards(batch_of(*shown))[0].tolist() == pytest.approx(expected)


def word_vectors(folder, bad):
    file = folder / "words.vec"
    file.write_text(f"2 3\nstairs 1 0 2\nwall 0 {bad} 1\n")
    return lambda: read_vectors(file), file, "line 3"


def test_vectors_are_finite(tmp_path):
    check_door(word_vectors, tmp_path)


@pytest.mark.quick
@pytest.mark.parametrize("attack", STRANGE)
def test_vectors_that_never_end_are_refused_at_once(tmp_path, attack):
    check_reader(read_vectors, attack, tmp_path)


def test_a_missing_file_and_the_floor_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "tiny.vec").write_text("gold 1 0\nfight 0 1\n")
    config = get_config("oni.py", "score,words")
    refusal(lambda: check_stage(train_policy, config), "needs a file of word vectors")
    config.words.vectors = str(tmp_path / "tiny.vec")
    check_stage(train_policy, config)
    config.policy.online.floor = 0.1
    refusal(lambda: check_stage(train_policy, config), "--config.words.floor")
