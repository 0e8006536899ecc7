"""Evaluation of policies that write, whose checkpoints are written here without training."""

import json

import jax
import numpy as np
import pytest
from conftest import get_config
from flax import nnx
from tiny_writer import TOKENISER, make_value_model

from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.language.config import to_record
from motif_jax.language.hub import write_language_model
from motif_jax.stages import evaluate, train_values
from motif_jax.structs import UserError
from motif_jax.tokens import digest, write_tokeniser

SECTION = {"reward_scale": 1.0, "value_min": "-inf", "value_max": "inf"}  # train_values, as it is recorded
WORDLE = {"world": "wordle", "options": json.dumps({"words": "small"})}


def write_values(home, recipe="ilql", env=WORDLE, **bounds):
    """What `--stage=train_values` leaves behind, of a small model with random values."""
    model, folder = make_value_model(recipe), home / "values"
    (folder / "policy").mkdir(parents=True)
    write_tokeniser(folder / "policy", TOKENISER)
    write_language_model(folder / "policy", nnx.merge(model.graph, model.policy))
    sections = {"language": {"dtype": "float32"}, "transcripts": {"template": "marks"}, "env": env}
    facts = {
        "recipe": recipe, "tokeniser": digest(TOKENISER), "emitted": TOKENISER.encode("abcde"),
        "model": to_record(model.config), "config": sections | {"train_values": SECTION | bounds},
    }  # fmt: skip
    learnt = model.online | {"q": model.target["q"]} if model.target else {"policy": model.policy}
    state = {"learnt": learnt, "target": model.target}
    keeper = Checkpoints(folder / "checkpoints", 2)
    keeper.save(7, {"train": jax.tree.map(np.asarray, state)}, facts)
    keeper.close()
    return home


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Workdirs with values, by recipe."""
    folder = tmp_path_factory.mktemp("writers")
    return {recipe: write_values(folder / recipe, recipe) for recipe in ("ilql", "bc")}


def settings(policy="", env=WORDLE, **decoding):
    config = get_config()
    config.env.update(env)
    few = {"policy": str(policy), "beside": "random", "episodes": 3, "num_workers": 0, "games_per_worker": 4}
    config.evaluate.update(few)
    config.decoding.update({"betas": "0", "max_tokens": 6, "batch_size": 4} | decoding)
    return config


def refusal(config, workdir):
    evaluate.check(config)
    with pytest.raises(UserError) as caught:
        evaluate.run(config, workdir)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_values_of_another_world_are_refused(homes, tmp_path):
    said = refusal(settings(homes["ilql"], {"world": "comments", "options": "{}"}), tmp_path)
    assert "was trained in the world 'wordle', not 'comments' (--config.evaluate.policy, --config.env)" in said


def test_values_of_other_games_are_told_of_once(homes, tmp_path, capsys):
    """Also where another policy is loaded in between."""
    config = settings(homes["ilql"], WORDLE | {"options": json.dumps({"words": "larger"})}, betas="0")
    config.evaluate.beside = str(homes["bc"])
    evaluate.run(config, tmp_path)
    told = capsys.readouterr().out
    assert told.count('ilql-7 was trained with options = \'{"words": "small"}\', not \'{"words": "larger"}\'') == 1


def test_nothing_is_played_before_every_decoding_of_another_run_is_known_to_work(homes, tmp_path):
    """The recipe of another run is known only from its checkpoint: `check` cannot see it."""
    said = refusal(settings(homes["bc"], betas="0,4"), tmp_path)
    assert "the recipe 'bc' has no values, so only beta 0 can be decoded, not 4" in said
    assert not (tmp_path / "evaluate").exists()


@pytest.mark.quick
@pytest.mark.parametrize("stage", [train_values, evaluate])
def test_texts_that_never_fit_are_refused_before_a_model_is_made(stage):
    config = settings(max_tokens=64)
    config.stages = ("train_language", "train_values", "evaluate")
    config.train_language.max_length, config.train_values.games, config.evaluate.beside = 64, 8, ""
    with pytest.raises(UserError, match=r"64 tokens does not fit into the 64 .*--config.train_language.max_length"):
        stage.STAGE.check(stage.STAGE.view(config))
    config.decoding.max_tokens = 63
    stage.STAGE.check(stage.STAGE.view(config))
