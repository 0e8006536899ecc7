import json
import os
import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from conftest import ROOT
from toy_policies import TASK, policies

import motif_jax
import motif_jax.envs
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.nethack.gym_game import GymGame
from motif_jax.envs.nethack.observations import observation_specs
from motif_jax.policies.model import PolicyPlayer, read_policy


@pytest.mark.journey
def test_a_policy_plays_a_game_step_by_step():
    """It wins, it gives what the trainer's own player gives, and it remembers until it is told to forget."""
    good = policies().good
    policy, env = motif_jax.load_policy(good), GymGame(TASK)
    assert policy.metadata["model"]["network"] == "small"
    assert policy.reward is not None
    player = PolicyPlayer(read_policy(good)[0], 1, 1, seed=0)
    specs, won = observation_specs(player.reads), 0
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        policy.begin()
        first = True
        for _ in range(20):
            act = policy(observation)
            inside = {name: observation[name].reshape(1, *specs[name].shape) for name in player.reads}
            _, outputs = player(inside, np.array([first]), np.array([0]))
            odds = np.exp(outputs["logits"][0])
            np.testing.assert_allclose(act.probabilities, odds / odds.sum(), rtol=1e-4)
            assert act.value == pytest.approx(float(outputs["value"][0]), rel=1e-4)
            observation, _, terminated, truncated, info = env.step(act.action)
            first = False
            if terminated or truncated:
                break
        won += info["success"]
    assert won > 5
    act = policy(observation, greedy=True)
    assert act.action == act.probabilities.argmax()
    policy.begin()
    outer = policy(observation)
    policy.begin()
    inner = policy({name: observation[name].reshape(specs[name].shape) for name in policy.reads})
    assert np.array_equal(inner.probabilities, outer.probabilities)
    env.close()


def test_a_policy_plays_many_games_at_once_each_as_if_it_were_alone():
    policy, count = motif_jax.load_policy(policies().good, seed=1), 3
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    many = gymnasium.vector.SyncVectorEnv([lambda: GymGame(TASK)] * count, autoreset_mode=mode)
    observations, _ = many.reset(seed=7)
    policy.begin(count)
    alone = [motif_jax.load_policy(policies().good) for _ in range(count)]
    restarts = 0
    for _ in range(25):
        acts = policy(observations)
        assert (acts.action.shape, acts.probabilities.shape, acts.value.shape) == ((3,), (3, 23), (3,))
        for game, one in enumerate(alone):
            act = one({name: array[game] for name, array in observations.items()})
            np.testing.assert_allclose(act.probabilities, acts.probabilities[game], rtol=1e-4, atol=1e-7)
            assert act.value == pytest.approx(acts.value[game], rel=1e-4, abs=1e-6)
        observations, _, ended, cut, _ = many.step(acts.action)
        done = ended | cut
        policy.restart(done)
        for game in np.flatnonzero(done):
            alone[game].begin()
            restarts += 1
    assert restarts >= count
    greedy = policy(observations, greedy=True)
    assert np.array_equal(greedy.action, greedy.probabilities.argmax(-1))
    same = policy({name: list(array) for name, array in observations.items()})  # a list with one per game
    assert same.probabilities.shape == (3, 23)
    policy.begin()  # one game again
    assert isinstance(policy({name: array[0] for name, array in observations.items()}).action, int)
    many.close()


@pytest.mark.journey
@pytest.mark.parametrize("reader", ["orbax", "safetensors"])
def test_the_files_are_read_as_the_documentation_does_it(tmp_path, reader):
    """Without this package, in another process."""
    text = (ROOT / "docs/python.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if f"{reader}." in block]
    place = policies().good if reader == "orbax" else ROOT / "motif_jax/zoo/quickstart"
    for example in ("runs/quickstart", "my-agent"):
        code = code.replace(f'"{example}', f'"{place}')
    code += f"""
import sys, json, numpy as np
assert not [name for name in sys.modules if name.startswith("motif_jax")]
np.save({str(tmp_path / "kernel.npy")!r}, kernel)
def flat(tree, path=()):
    if not isinstance(tree, dict):
        return [(path, tree)]
    return [pair for name, inner in tree.items() for pair in flat(inner, (*path, name))]
names = [".".join(path) for path, _ in flat(arrays)]
print(json.dumps([sorted(names), facts]))
"""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, facts = json.loads(done.stdout.splitlines()[-1])
    model, known, _ = read_policy(place)
    assert facts["model"] == known["model"]
    params = leaves_by_path(model.params)
    assert np.array_equal(np.load(tmp_path / "kernel.npy"), params["policy", "kernel"])
    within = "learner.params." if reader == "orbax" else "params."
    found = [name.removeprefix(within).split(".") for name in names if name.startswith(within)]
    assert {tuple(part for part in path if part != "value") for path in found} == params.keys()
    if reader == "orbax":
        for start in ("learner.optimizer", "learner.version", "sources.learnt."):
            assert any(name.startswith(start) for name in names)
        assert facts.keys() >= {"model", "config", "sources", "progress"}
