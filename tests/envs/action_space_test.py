"""Actions of several choices or numbers: recorded, drawn, given to the environment; spaces that are refused."""

import numpy as np
import pytest
from own_control import ACTIONS, AimWorld

from motif_jax.envs.gym_world import action_parts_of
from motif_jax.envs.world import ActionSpace, SeedStream, game_seed, space_from, space_of
from motif_jax.structs import ArraySpec

pytestmark = pytest.mark.quick
SPACES = {
    "numbers": ActionSpace((), (-1.0, 0.0), (1.0, float(np.float32(0.1)))),
    "choices": ActionSpace((3, 2)),
    "switches": ActionSpace((2, 2)),
}


@pytest.mark.parametrize("actions", SPACES)
def test_a_world_records_what_its_game_can_take(actions):
    world = AimWorld(actions=actions)
    space = space_of(world)
    assert space == SPACES[actions] == space_from({"action_space": space.record(), "num_actions": space.outputs})
    assert world.action == space.spec == ArraySpec((2,), "float32" if actions == "numbers" else "int32")
    assert space.outputs == {"numbers": 4, "choices": 5, "switches": 4}[actions]
    assert world.action_names == ()
    world.check()
    game = world.game(shown=False)
    chances = np.random.default_rng(0).random(300)
    drawn = [game.draw(chance) for chance in chances]
    assert drawn == [game.draw(chance) for chance in chances]
    convert = action_parts_of(ACTIONS[actions], "")[1]
    for number, action in enumerate(drawn):
        recorded = np.array(action, world.action.dtype)
        assert ACTIONS[actions].contains(convert(recorded))
        game.reset(game_seed(0, SeedStream.TRAIN, number), number)
        assert game.step(recorded.tolist()) <= 0
    low, high = np.min(drawn, 0), np.max(drawn, 0)
    if actions == "numbers":
        np.testing.assert_allclose([low, high], [space.low, space.high], atol=0.05)
        assert ACTIONS[actions].contains(convert(np.float32(space.high)))  # 0.1 is more in float32 than in float64
    else:
        assert (low == 0).all()
        assert (high == np.array(space.sizes) - 1).all()


@pytest.mark.parametrize("record", [{}, {"low": [0.0, 0.0], "high": [1.0]}, {"sizes": [4, 2]}])
def test_metadata_that_does_not_fit_is_refused(record):
    with pytest.raises(ValueError, match="action_space"):
        space_from({"action_space": record, "num_actions": 5})
