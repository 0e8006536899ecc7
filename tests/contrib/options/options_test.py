import itertools

import numpy as np
import pytest
from conftest import assert_same_bits, get_config, last_checkpoint, refusal, run_stage

from motif_jax import load_policy
from motif_jax.contrib.options.treasure import ACTIONS, TreasureGame
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.files import read_json, read_lines
from motif_jax.pages.blocks import drawn
from motif_jax.pages.figures import label
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import load_replay
from motif_jax.run import Run
from motif_jax.stages import evaluate, train_policy
from motif_jax.stages.evaluate.results import pack
from motif_jax.stages.report import read_record
from motif_jax.stages.train_policy.page import report_training
from motif_jax.structs import UserError

STEERED = "gold=1,stairs=0.25"
TINY = {
    "num_workers": 0, "games_per_worker": 8, "groups": 2, "rollout_length": 16, "batch_size": 256, "tensorboard": False,
    "synchronous": True, "train_for_env_steps": 1500, "wait_for_learner": False, "log_every_s": 1e-6,
}  # fmt: skip


def settings(**values):
    config = get_config("options.py", "treasure")
    config.policy.update(TINY | {name: value for name, value in values.items() if name in config.policy})
    config.options.update({name: value for name, value in values.items() if name in config.options})
    config.evaluate.update({"episodes": 6, "num_workers": 0, "games_per_worker": 4, "baselines": "random,#gold"})
    return config


def run(workdir, **values):
    run_stage(train_policy, settings(**values), workdir)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("options")
    run(workdir)
    return workdir


@pytest.mark.journey
def test_only_steps_of_the_game_count(whole):
    summary, rows = read_json(whole / "policy/summary.json"), list(read_lines(whole / "policy/metrics.jsonl"))
    assert 1500 <= summary["env_steps"] < 256 * summary["updates"]
    shares = [[row[f"option/{name}/share"] for name in ("stairs", "gold")] for row in rows]
    np.testing.assert_allclose(np.sum(shares, 1), 1)
    for row in rows:
        assert 1 <= row["option/gold/length"] <= 40
        assert row["option/stairs/earns/stairs"] >= 0
        assert row["episode/steps"] is None or row["episode/steps"] <= 40
    # per step of the game, options earn what the world paid: 0.1 per piece of gold, 2 for the stairs
    earned = sum(row[f"option/{name}/share"] * row[f"option/{name}/earns/controller"] for row in rows
                 for name in ("stairs", "gold")) / len(rows)  # fmt: skip
    assert earned > 0
    for row, later in itertools.pairwise(rows[1:]):  # a row has the metrics of the update before it
        of_game, own = (sum(row[f"option/{name}/share"] * row[f"option/{name}/earns/{of or name}"]
                            for name in ("stairs", "gold")) for of in ("controller", ""))  # fmt: skip
        assert later["train/extrinsic_reward"] == pytest.approx(of_game / 0.1, rel=1e-4)
        assert later["train/intrinsic_reward"] == pytest.approx(own, rel=1e-4)


def test_a_run_is_the_same_twice_and_goes_on(whole, tmp_path):
    run(tmp_path)
    one, other = last_checkpoint(whole), last_checkpoint(tmp_path)
    assert one[0] == other[0]
    assert_same_bits(one[1]["learner"], other[1]["learner"])
    run(tmp_path, train_for_env_steps=2500)
    assert last_checkpoint(tmp_path)[0] >= 2500


def test_the_page_tells_of_options(whole):
    report_training(whole)
    facts = read_record(whole).facts
    assert facts.title == "An agent that chooses between stairs and gold"
    assert "has the options stairs and gold, each with a reward of its own. It was trained for" in drawn(facts.lead)
    section = drawn([one.blocks for one in Run(whole).sections()])
    assert "options stairs:20,gold:1 · controller game:0.1" in section
    assert "earns for controller" in section


@pytest.mark.parametrize(("values", "has"), [
    ({"options.rewards": "stairs:20,down=gold"}, "the options stairs, gold, not the options stairs, down ("),
    ({"options.rewards": "", "options.controller": "", "policy.sources": ""}, "stairs, gold, not one behaviour ("),
])  # fmt: skip
def test_a_policy_is_not_begun_from_one_with_other_options(whole, tmp_path, values, has):
    config = settings(init_from=str(whole))
    config.update_from_flattened_dict(values)
    refusal(lambda: run_stage(train_policy, config, tmp_path), has, "--config.policy.init_from")


@pytest.mark.journey
def test_options_are_evaluated_alone_beside_their_controller(whole):
    config = settings()
    run_stage(evaluate, config, whole)
    step = last_checkpoint(whole)[0]
    names = {path.name for path in (whole / "evaluate").iterdir()}
    assert {"random", f"policy-{step}", f"policy-{step}-gold"} <= names
    for name in (f"policy-{step}", f"policy-{step}-gold"):
        for row in read_lines(whole / "evaluate" / name / "episodes.jsonl"):
            assert row["steps"] <= 40
    replay = load_replay(next((whole / "evaluate" / f"policy-{step}" / "replays").glob("*.npz")), "")
    assert replay.metadata["choosers"] == ["stairs", "gold"]
    assert len(replay.chooser) == replay.steps
    shown = {replay.action_name(number) for number in range(replay.steps)}
    assert shown <= {f"{action} ({option})" for action in ACTIONS for option in ("stairs", "gold")}
    assert pack(replay)["choosers"] == ["stairs", "gold"]
    names = [label(player) for player in read_record(whole).players[""]]
    assert names == [f"the agent, step {step:,}", f"the agent as gold, step {step:,}", "random play"]
    config.evaluate.baselines = "#silver"
    with pytest.raises(UserError, match=r"stairs, gold, not 'silver' \(--config.evaluate.baselines\)"):
        run_stage(evaluate, config, whole)


def test_a_loaded_policy_decides_by_itself(whole):
    policy, alone = load_policy(whole, seed=1), load_policy(whole, seed=1, variant="gold")
    assert policy.acting.names == ["stairs", "gold"]
    game, seen = TreasureGame(), set()
    game.reset(game_seed(0, SeedStream.TRAIN, 0))
    while not game.end:
        act = policy(game.seen)
        seen.add(act.chooser)
        assert len(act.probabilities) == 9
        assert alone(game.seen).chooser == "gold"
        game.step(act.action)
    assert seen <= {"stairs", "gold"}
    policy.begin(12)
    many = {name: np.stack([array] * 12) for name, array in game.seen.items()}
    acts = [policy(many) for _ in range(20)]
    assert all(len(act.chooser) == len(act.action) == 12 for act in acts)
    assert {name for act in acts for name in act.chooser} == {"stairs", "gold"}
    refusal(lambda: load_policy(whole, variant="silver"), "has the options stairs, gold, not 'silver'")


def test_a_controller_of_mixtures_is_trained_and_a_person_sets_mixtures(tmp_path):
    run(tmp_path, controller_chooses="mixtures", coefficients="0,1", length="4")
    for row in read_lines(tmp_path / "policy/metrics.jsonl"):
        np.testing.assert_allclose(sum(row[f"option/{name}/share"] for name in ("stairs", "gold")), 1)
        assert row["option/gold/length"] < 5  # a turn may begin in the row before
    model, metadata, _ = read_policy(tmp_path)
    assert metadata["model"]["options"] == {
        "names": ["stairs", "gold"], "lengths": [4], "coefficients": [0, 1], "sum_to_one": True,
    }  # fmt: skip
    assert model.acting.heads.sizes == (9, 2, 2)

    config = settings()
    config.evaluate.baselines = "#gold=1+stairs=0.25"
    run_stage(evaluate, config, tmp_path)
    step = last_checkpoint(tmp_path)[0]
    shown_by = {"": {"stairs=0.5+gold=0.5", "stairs=1", "gold=1"}, "-gold=1+stairs=0.25": {"stairs=0.2+gold=0.8"}}
    for name, shown in shown_by.items():
        replay = load_replay(next(tmp_path.glob(f"evaluate/policy-{step}{name}/replays/*.npz")), "")
        assert {replay.choosers[number] for number in replay.chooser} <= shown

    policy, steered = load_policy(tmp_path, seed=1), load_policy(tmp_path, variant=STEERED)
    game = TreasureGame()
    game.reset(game_seed(0, SeedStream.TRAIN, 0))
    assert steered(game.seen).chooser == "stairs=0.2+gold=0.8"
    assert policy(game.seen).chooser in {"stairs=0.5+gold=0.5", "stairs=1", "gold=1"}
    odds = load_policy(tmp_path, variant=STEERED)(game.seen).probabilities
    np.testing.assert_array_equal(load_policy(tmp_path, variant="gold=4,stairs")(game.seen).probabilities, odds)
    assert not np.array_equal(steered(game.seen).probabilities, load_policy(tmp_path, variant="gold")(game.seen)[1])
    refusal(lambda: load_policy(tmp_path, variant="silver=1"), "mixes the options stairs, gold, not 'silver'")
