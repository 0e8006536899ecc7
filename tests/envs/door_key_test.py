"""MiniGrid's DoorKey, an example: its captions, its rules, and its reward program on solved and on random episodes."""

import sys

import numpy as np
import pytest
from conftest import ROOT

from motif_jax.captions import decode
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.worlds import check_world
from motif_jax.experiment import defaults
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.code.source import read_program

pytest.importorskip("minigrid", reason="needs the extra [minigrid]: bash launch/test.sh installs it")
pytestmark = pytest.mark.quick
LEFT, RIGHT, FORWARD, PICKUP, TOGGLE = 0, 1, 2, 3, 5
WAYS = [(1, 0), (0, 1), (-1, 0), (0, -1)]  # of the agent's directions
PROGRAM = ROOT / "examples/rewards/doorkey.reward"
EPISODES = 20


@pytest.fixture(scope="module")
def world():
    sys.path.insert(0, str(ROOT))
    config = defaults()
    config.env.world = "examples.minigrid.door_key:DoorKey"
    yield check_world(config.env.to_dict())
    sys.path.remove(str(ROOT))


def way_to(env, kind):
    """The actions to stand before the first object of a kind, by breadth-first search."""
    grid, start = env.grid, (*env.agent_pos, env.agent_dir)
    came = {start: []}
    for x, y, way in (queue := [start]):
        ahead = x + WAYS[way][0], y + WAYS[way][1]
        cell = grid.get(*ahead)
        if cell and cell.type == kind:
            return came[x, y, way]
        nexts = {LEFT: (x, y, (way - 1) % 4), RIGHT: (x, y, (way + 1) % 4)}
        if cell is None or cell.can_overlap():
            nexts[FORWARD] = (*ahead, way)
        for action, place in nexts.items():
            if place not in came:
                came[place] = [*came[x, y, way], action]
                queue.append(place)
    raise AssertionError(f"no way to the {kind}")


def solve(env):
    """The actions that solve the level, one at a time."""
    for kind, act in (("key", PICKUP), ("door", TOGGLE), ("goal", FORWARD)):
        yield from [*way_to(env, kind), act]


def play(world, episode, actions=None):
    """An episode as a rollout of one game, by `actions` of the environment or at random."""
    names = ("image", "direction", "event_image", "event_direction", "event_message")
    vector = world.vector(1, names, seed=0, stream=SeedStream.COLLECT, next_episode=lambda _: episode)
    vector.reset()
    rng, rows = np.random.default_rng(episode), []
    player = actions and actions(vector.games[0]._state)
    while not vector.finished:
        row = {name: np.zeros((1, *world.specs[name].shape), world.specs[name].dtype) for name in names}
        row |= {name: np.zeros(1, bool) for name in ("terminated", "truncated")}
        row |= {"reward": np.zeros(1, np.float32), "first": vector.first.copy()}
        row["action"] = np.array([next(player) if player else rng.integers(7)])
        vector.observe(row)
        vector.step(row["action"].tolist(), row)
        rows.append(row)
    found = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    after = {name: np.zeros((1, *world.specs[name].shape), world.specs[name].dtype) for name in ("image", "direction")}
    vector.observe(after)  # of the next episode
    for name, array in (after | {"first": np.array([True])}).items():
        found[name] = np.concatenate([found[name], array[None]])
    ((_, info),) = vector.finished
    return found | {"game": np.zeros((1, 1), int)}, info


def test_the_program_pays_key_door_and_goal_once(world):
    program = read_program(str(PROGRAM), world)
    assert not [entry for entry in program.uses.entries.values() if not entry.after]  # results of each step
    for episode in range(EPISODES):
        rollout, info = play(world, episode, solve)
        assert info.success
        assert info.figures == (True, True)
        pay = Runner(program).rewards(rollout)[:, 0]
        captions = [decode(text) for text in rollout["event_message"][:, 0]]
        paid = [round(float(amount), 3) for amount in pay if amount > 0.1]
        assert [amount - (amount in (0.22, 0.32)) * 0.02 for amount in paid] == pytest.approx([0.2, 0.3, 1.0])
        assert pay[-1] == pytest.approx(1.0)  # with the episode's last step
        for start, amount in (("You carry the key.", 0.2), ("The door is open.", 0.3), ("You reach the goal.", 1.0)):
            first = next(step for step, text in enumerate(captions) if text.startswith(start))
            assert pay[first] == pytest.approx(amount, abs=0.021)
