"""Text worlds whose agent chooses among texts."""

import random

import pytest
from conftest import refusal

from motif_jax.envs.choices import SAMPLED
from motif_jax.envs.maze import MazeWorld
from motif_jax.envs.world import GameSeed, to_text
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.structs import UserCodeError

pytestmark = pytest.mark.quick
CELLAR = '{"game": "examples.cellar:CellarWorld"}'
OPENING = "It is dark. Something on the table glints."


def test_choosing_a_move_is_writing_its_text_and_the_prompt_is_the_conversation():
    world, written = (
        make_world({"world": "choices", "options": CELLAR}),
        make_world({"world": "examples.cellar:CellarWorld"}),
    )
    chosen, writes, rng = world.game(), written.game(), random.Random(0)
    for number in range(20):
        for game in (chosen, writes):
            game.reset(GameSeed(number, 0, 0), number)
        while not writes.end:
            action = rng.randrange(len(world.action_names))
            assert chosen.step(action) == writes.step(written.moves[action])
            assert chosen.turns == writes.turns
            lines = to_text(chosen.seen["prompt"]).splitlines()
            texts = [turn.text for turn in writes.turns]
            assert lines == [texts[0], *texts[1:][-8:]]  # four of each side
            assert chosen.message == writes.message
            assert (chosen.screen().chars == writes.screen().chars).all()
        assert chosen.info() == writes.info()
    assert chosen.seen["prompt"].shape == world.specs["prompt"].shape


def test_a_new_model_knows_the_words_of_random_play_and_the_same_ones_every_time():
    one, other = (make_world({"world": "choices", "options": CELLAR}).words for _ in range(2))
    assert one == other
    assert f"{OPENING}\n" in one
    assert any(text.endswith("You have the key.\n") for text in one)
    assert {*one} > {*make_world({"world": "choices", "options": CELLAR}).action_names}
    assert len(one) > SAMPLED


class Short(MazeWorld):
    written = 4


class Same(MazeWorld):
    moves = ("up", "up")


class Single(MazeWorld):
    moves = "up"


@pytest.mark.parametrize(("options", "sentence"), [
    ('{"game": "wordle"}', "the world 'wordle' has no texts to choose among: give its class moves = ("),
    ('{"game": "toy"}', "the world 'toy' is played by actions already, and not by writing"),
    ('{"game": "mze"}', "unknown world 'mze'"),
    ('{"game": 5}', "game must be text"),
    ('{"game": "nowhere:Game"}', "cannot use the world 'nowhere:Game'"),
    ('{"game": "examples.cellar:Celar"}', "has no class 'Celar': did you mean 'Cellar'?"),
    ('{"window": 0}', "window must be a whole number from 1"),
    ('{"game": "maze", "size": 3}', "the world 'maze' cannot be made with max_episode_steps, size: "),
    ('{"window": 8}', "options of the world 'choices' name the text game, as in"),
    ('{"game": "choices_test:Short"}', "the move 'right' of the world 'choices_test:Short' has more than 4 bytes"),
    ('{"game": "choices_test:Same"}', "must be two or more different texts, not ('up', 'up')"),
    ('{"game": "choices_test:Single"}', "must be two or more different texts, not 'up'"),
])  # fmt: skip
def test_games_without_texts_to_choose_among_are_refused_in_a_sentence(options, sentence):
    refusal(lambda: make_world({"world": "choices", "options": options}), "--config.env.", sentence)


class Broken(MazeWorld):
    def game(self, shown=True):
        raise RuntimeError("out of mazes")


def test_an_error_of_the_game_names_its_class_and_the_flag():
    env = {"world": "choices", "options": '{"game": "choices_test:Broken"}'}
    said = "the world 'choices_test:Broken' failed with RuntimeError: out of mazes (--config.env.options)"
    refusal(lambda: check_world(env), said, kind=UserCodeError)
