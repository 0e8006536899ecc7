import functools
import os
import signal

import jax
import pytest
from conftest import assert_same_bits, viewed
from offline_test import rows
from quick_programs import QuickProgram
from train_values_test import config_for

from motif_jax import experiment
from motif_jax.devices.mesh import map_update
from motif_jax.files import read_json
from motif_jax.language.hub import read_language_model
from motif_jax.offline.recipes import recipe_of
from motif_jax.policies.writing import list_values, play_tokens, read_values
from motif_jax.stages import offline
from motif_jax.stages.train_language.model import make_parts, write_model
from motif_jax.stages.train_values import learning
from motif_jax.structs import Stopped, Turn
from motif_jax.transcripts.store import Transcripts

CHANGES = {
    "collect__transcripts": 100, "language__width": 8, "train_values__learning_rate": 1e-2, "train_values__polyak": 0.1,
    "train_values__log_every": 3, "train_values__conservative_weight": 0.3, "train_values__best_share": 0.7,
    "train_values__replies": 2, "train_values__games": 0, "train_values__evaluate_every": 0, "decoding__candidates": 2,
    "decoding__batch_size": 4,
}  # fmt: skip
# One of each kind; offline_update_test.py and group_loss_test.py compare the losses of all. What is tried beside: the
# return of games that rank candidates, and targets that are copied at some updates.
KINDS = {
    "filtered_bc": {}, "ilql+joint": {"hard_update_every": 2}, "utterance_awac": {}, "decision_transformer": {},
    "chai": {"games": 4},
    "gigpo": {"games": 8, "group_size": 4, "rounds": 2, "updates_per_round": 2, "reference_coefficient": 0.1},
}  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The config, the transcripts of a hundred short games, and a language model that has learnt nothing."""
    folder = tmp_path_factory.mktemp("recipes")
    config = config_for(folder, **CHANGES)
    experiment.run(config.to_dict(), folder, ["collect"])
    store = Transcripts(folder / "transcripts")
    parts = make_parts(config.language, store, config.train_values, seed=0, recipe=recipe_of("bc"))
    write_model(folder / "model", parts, parts.params)
    config.transcripts.path, config.train_values.policy = str(folder / "transcripts"), str(folder / "model")
    return config


@pytest.fixture
def programs(monkeypatch):
    """What takes the time is to compile: the runs of a test share their programs, which are compiled quickly."""
    made = {}

    def mapped(module, function, *how, **more):
        key = module.__name__, function.__qualname__
        if key not in made:
            made[key] = QuickProgram(map_update(function, *how, **more))
        return made[key]

    for module in (offline, learning):
        monkeypatch.setattr(module, "map_update", functools.partial(mapped, module))
    return made


def trained(config, workdir, monkeypatch, stopped=False):
    """Runs the stage; what it has come to. It is `stopped` by a signal during the first update of the second epoch."""
    trainings, kind = [], offline.Training

    class Watched(kind):
        def __init__(self, learner, *more):
            super().__init__(learner, *more)
            trainings.append(self)
            self.updates, self.learn, learner.learn = 0, learner.learn, self.watch

        def watch(self, *given):
            self.updates += 1
            if stopped and self.updates == self.learner.num_steps(0) + 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return self.learn(*given)

    with monkeypatch.context() as patch:
        patch.setattr(offline, "Training", Watched)
        experiment.run(config.to_dict(), workdir, ["train_values"])
    return jax.device_get(trainings[0].state)


def graded(*arguments):
    """Games in which each `a` pays: a network that has learnt nothing never guesses a word."""
    games = play_tokens(*arguments)
    for at, (episode, *_) in enumerate(games):
        turns = [Turn(one.text, one.text.count("a") - 1.0) if one.is_action else one for one in episode.turns]
        games[at] = games[at]._replace(episode=episode._replace(turns=tuple(turns)))
    return games


def files_of(workdir):
    """All that a run leaves behind beside the checkpoints, but for times."""
    folder = workdir / "values"
    files = (folder / "summary.json", folder / "rankings.json")
    contents = {"rows": rows(folder)} | {file.name: read_json(file) for file in files if file.exists()}
    return contents | {file.name: file.read_bytes() for file in (folder / "policy").iterdir()}


@pytest.mark.differs("ilql", there="a restart begins the data anew", here="a resumed run ends with the same bits")
@pytest.mark.parametrize("recipe", KINDS)
def test_every_kind_of_recipe_ends_with_the_same_bits_after_a_stop(start, programs, tmp_path, monkeypatch, recipe):
    config = start.copy_and_resolve_references()
    config.train_values.update({"recipe": recipe, **KINDS[recipe]})
    monkeypatch.setattr(learning, "play_tokens", graded)
    whole = trained(config, tmp_path / "whole", monkeypatch)
    with pytest.raises(Stopped, match="stopped by SIGTERM after"):
        trained(config, tmp_path / "stopped", monkeypatch, stopped=True)
    resumed = trained(config, tmp_path / "stopped", monkeypatch)
    assert_same_bits(resumed, whole)  # what is learnt, its targets, the optimizer, the number of updates
    wanted = files_of(tmp_path / "whole")
    assert files_of(tmp_path / "stopped") == wanted
    assert all(row.get("finite", 1) == 1 for row in wanted["rows"])
    assert wanted["rows"][0]["valid_loss"] != wanted["rows"][-1]["valid_loss"]
    assert len(programs) == 2  # the update and the validation

    model, _ = read_values(tmp_path / "stopped/values/checkpoints")
    online = {name: leaves for name, leaves in whole.learnt.items() if name not in ("policy", "q")}
    assert_same_bits((model.target, model.online), (whole.target, online))
    if "policy" in whole.learnt:
        assert_same_bits(model.policy, whole.learnt["policy"])


def test_the_best_state_by_return_is_written_and_ranked(start, programs, tmp_path, monkeypatch):
    config, returns, ranked = start.copy_and_resolve_references(), iter([-3.0, -1.0, -2.0]), []
    config.train_values.update({"recipe": "ilql+joint", "games": 4})
    monkeypatch.setattr(learning.Values, "play", lambda *_: next(returns))
    rank_texts = learning.rank_texts
    monkeypatch.setattr(learning, "rank_texts", lambda *given: ranked.append(given[-1]) or rank_texts(*given))
    trained(config, tmp_path, monkeypatch)
    chosen, (directory, steps) = read_json(tmp_path / "values/summary.json")["checkpoint"], list_values(tmp_path)
    assert chosen == steps[0] < steps[-1]
    best, _ = read_values(directory, str(chosen))
    _, written, _ = read_language_model(tmp_path / "values/policy")
    assert_same_bits(written, best.policy)
    assert_same_bits(ranked[0].learnt["policy"], best.policy)


GROUPS = {
    "train_values__recipe": "grpo", "train_values__batch_size": 16, "train_values__group_size": 8,
    "train_values__rounds": 8, "train_values__num_epochs": 2, "train_values__learning_rate": 1e-2,
    "train_values__games": 8, "decoding__betas": "0", "decoding__kinds": "sample,greedy",
}  # fmt: skip


@pytest.mark.journey
def test_texts_that_pay_are_written_more_often_and_the_policy_plays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(learning, "play_tokens", graded)
    config = config_for(tmp_path, **GROUPS)
    experiment.run(config.to_dict(), tmp_path / "run", ["collect", "train_language", "train_values", "evaluate"])
    played = [row for row in rows(tmp_path / "run/values") if "groups_that_differ" in row]
    assert played[-1]["return"] > played[0]["return"] + 2  # an `a` more in each text, at least
    assert all(row["first_ratio_deviation"] < learning.EXACT for row in played)
    said = capsys.readouterr().out
    assert "ratios do not begin at 1" not in said
    assert sum(" * " in line for line in said.splitlines()) == 1  # the best decoding


@pytest.mark.quick
def test_group_values_are_unused_by_other_recipes(tmp_path):
    of_groups = {"train_values.group_size", "train_values.rounds", "decoding.temperature"}
    assert not of_groups & viewed(config_for(tmp_path), "train_values").decisive()
    decisive = viewed(config_for(tmp_path, **GROUPS), "train_values").decisive()
    assert of_groups < decisive
    assert not {"train_values.step_weight", "train_values.discount"} & decisive
