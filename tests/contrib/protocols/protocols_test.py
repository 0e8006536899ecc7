"""The rules of the NetHack Challenge: NLE's own, beside NLE's own environment. And those of BALROG."""

import inspect

import numpy as np
import pytest
from conftest import check_stage, get_config, is_complete, run_stage
from nle.env.tasks import NetHackChallenge

from motif_jax.contrib.protocols.rules import CHALLENGE
from motif_jax.envs.nethack.game import KEYS, SCORE, NetHackGame
from motif_jax.envs.nethack.observations import FRAME
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.protocols import OWN_GAMES
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.pages.players import read_results
from motif_jax.stages import evaluate, visualize
from motif_jax.stages.evaluate import read_rows
from motif_jax.structs import UserError


def new_game(**settings):
    buffers = {name: np.zeros(spec.shape, spec.dtype) for name, spec in FRAME.items()}
    return NetHackGame(GameSettings(**settings), buffers), buffers


def challenge_config(task="score", **values):
    config = get_config("quickstart.py", task)
    config.evaluate.update({"policy": "random", "baselines": "", "protocol": "challenge", "num_workers": 0} | values)
    return config


@pytest.mark.quick
def test_the_settings_are_those_of_the_challenge():
    theirs = {name: one.default for name, one in inspect.signature(NetHackChallenge.__init__).parameters.items()}
    config = challenge_config()
    env = CHALLENGE.games(config.env)
    for name in ("character", "max_episode_steps", "penalty_mode", "penalty_step"):
        assert env[name] == theirs[name]
    assert env["no_progress_steps"] == theirs["no_progress_timeout"]
    assert set(CHALLENGE.changed) <= set(config.env)
    assert OWN_GAMES.games(config.env.to_dict()) == config.env.to_dict()
    assert challenge_config().env == config.env  # `games` changes no config


def test_a_game_is_the_one_that_nles_challenge_plays():
    """The same seed and keys give the same character, the same course, and rewards that add up to the score."""
    theirs = NetHackChallenge(fix_moon_phase=True)
    engine, compared = theirs.unwrapped.nethack, 0
    game, buffers = new_game(**{k: v for k, v in CHALLENGE.changed.items() if k != "task"})
    rng = np.random.default_rng(0)
    for episode in range(12):
        seed = game_seed(5, SeedStream.EVALUATE, episode)
        type(engine).set_initial_seeds(engine, seed.core, seed.disp, False)
        seen, _ = theirs.reset()
        game.reset(seed, episode)
        total = 0.0
        for _ in range(200):
            if any(seen["misc"]) or game.end:  # a question or a page, which we answer ourselves
                break
            assert seen["blstats"].tolist() == buffers["blstats"].tolist()
            action = int(rng.integers(1, 9))  # a step by the compass
            seen, reward, ended, cut, _ = theirs.step(list(theirs.actions).index(KEYS[action]))
            ours = game.step(action)
            if any(seen["misc"]) or ended or cut:
                break
            assert ours == reward
            total, compared = total + ours, compared + 1
            assert total == buffers["blstats"][SCORE]
    assert compared > 300
    game.close()
    theirs.close()


def test_evaluation_by_the_challenge_stands_apart_from_that_of_the_task(tmp_path, capsys):
    own = challenge_config(protocol="task", episodes=3)
    run_stage(evaluate, own, tmp_path)
    before = (tmp_path / "evaluate/random/summary.json").read_bytes()
    config = challenge_config(episodes=6, games_per_worker=6, replays="best")
    check_stage(evaluate, config)
    assert not is_complete(evaluate, config, tmp_path)
    run_stage(evaluate, config, tmp_path)
    assert is_complete(evaluate, config, tmp_path)
    assert is_complete(evaluate, own, tmp_path)
    assert (tmp_path / "evaluate/random/summary.json").read_bytes() == before
    folder = tmp_path / "evaluate/random-challenge"
    summary, rows = read_results(tmp_path)[folder.name], read_rows(folder / "episodes.jsonl")
    assert (summary["protocol"], summary["task"]) == ("challenge", "challenge")
    assert summary["rules"] == "by the rules of the NetHack Challenge"
    assert "By the rules of the NetHack Challenge" in (tmp_path / "parts/evaluate/Evaluation.json").read_text()
    assert [row["episode_return"] for row in rows] == [row["score"] for row in rows]
    table = capsys.readouterr().out.rpartition("random-challenge\n")[2]
    assert table.splitlines()[0].split() == ["6", "episodes"]  # alone: those by other rules are not comparable
    # What was recorded is found again, and any other episode can be played.
    for episode in ("best", "5"):
        config.visualize.update({"policy": "random", "episode": episode})
        run_stage(visualize, config, tmp_path)
        assert "random-challenge, episode" in capsys.readouterr().out


def test_the_bot_succeeds_in_balrogs_babyai_and_random_play_seldom(tmp_path):
    config = get_config(env__world="babyai")
    config.evaluate.update({"policy": "bot", "baselines": "random", "protocol": "balrog_babyai", "episodes": 20})
    config.evaluate.update({"num_workers": 0, "games_per_worker": 10, "replays": "best"})
    run_stage(evaluate, config, tmp_path)
    bot, random = (read_results(tmp_path)[f"{name}-balrog_babyai"] for name in ("bot", "random"))
    assert bot["figures"]["success"]["mean"] > 0.9 > 0.6 > random["figures"]["success"]["mean"]
    assert sum(name.startswith("success_") for name in bot["figures"]) == 5, "each family of missions"


@pytest.mark.quick
def test_rules_are_refused_for_other_games():
    for protocol, env, game in (
        ("challenge", {"world": "babyai"}, "NetHack, not for 'GoToLocal'"),
        ("balrog_nethack", {"task": "toy"}, "NetHack, not for 'toy'"),
        ("balrog_babyai", {"task": "score"}, "BabyAI, not for 'score'"),
    ):
        config = challenge_config(protocol=protocol)
        config.env.update(env)
        with pytest.raises(UserError, match=f"the protocol '{protocol}' is for {game}"):
            check_stage(evaluate, config)
