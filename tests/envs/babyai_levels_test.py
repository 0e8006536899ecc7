"""BabyAI-Text's levels: pairs that are held out, rooms, families by seed, and the bot in them."""

import re

import pytest
from babyai_games import MIXED, make, play_by_bot

from motif_jax.envs.babyai.game import DOOR_COLOURS, LEVELS, LocalLevel, all_reached, makers_of
from motif_jax.envs.babyai.words import HELD_OUT
from motif_jax.envs.gym_world import quiet
from motif_jax.envs.world import SeedStream
from motif_jax.structs import EndStatus


@pytest.mark.parametrize("pairs", ["train", "test"])
def test_missions_of_training_exclude_held_out_pairs_and_test_missions_use_them(pairs):
    """All the same, such things lie about in training."""
    seen = set()
    for maker in makers_of("MixedTrainLocal" if pairs == "train" else "MixedTestLocal"):
        env = maker()
        for seed in range(4):
            with quiet():
                env.reset(seed=seed)
            named = re.findall(r"(?:red|green|blue|purple|yellow|grey) (?:key|ball|box|door)", env.mission)
            assert ({*named} <= {*HELD_OUT}) if pairs == "test" else not {*named} & {*HELD_OUT}
            things = [thing for thing in env.grid.grid if thing is not None and thing.type != "wall"]
            seen |= {f"{thing.color} {thing.type}" for thing in things}
            doors = [thing for thing in things if thing.type == "door"]
            if doors:
                assert doors[0].color in DOOR_COLOURS[pairs]
                assert doors[0].is_locked
                assert (doors[0].color, "key") in {(thing.color, thing.type) for thing in things}
                assert env.width == 15
                assert pairs == "train" or named
    assert seen & {*HELD_OUT}


def test_levels_have_as_many_things_and_steps_as_published():
    things = {"goto": (9, 64), "pickup": (9, 64), "open": (10, 128), "putnext": (10, 128), "sequence": (10, 128)}
    for (family, (count, steps)), bare in zip(things.items(), makers_of("MixedTrainLocalN0"), strict=True):
        for env, fewer in ((LocalLevel(family, "train"), 0), (bare(), 8)):
            with quiet():
                env.reset(seed=5)
            lying = [thing.type for thing in env.grid.grid if thing is not None and thing.type != "wall"]
            assert len(lying) == count - fewer  # the key and the door included
            assert env.max_steps == steps


@pytest.mark.quick
def test_reachability_is_that_of_minigrid():
    env = LocalLevel("goto", "all")
    env.reset(seed=0)
    inside, outcomes = {(x, y) for x in range(1, 7) for y in range(1, 7)}, set()
    for _ in range(60):
        with quiet():
            env.grid.grid = [thing if thing and thing.type == "wall" else None for thing in env.grid.grid]
            env.place_agent()
            env.add_distractors(num_distractors=12, all_unique=False)
        things = {place for place in inside if env.grid.get(*place)}
        reached = all_reached(tuple(map(int, env.agent_pos)), inside - things, things)
        assert reached == env.check_objs_reachable(raise_exc=False)
        outcomes.add(reached)
    assert outcomes == {False, True}


@pytest.mark.differs(
    "glam",
    there="each environment plays one family of missions, which is drawn without a seed",
    here="the seed of each episode determines its family",
    reference="in training, each game plays one family, which its seed determines",
)
def test_as_published_each_game_keeps_its_family_in_training_but_not_in_evaluation():
    world = make(MIXED, reference_families=True)

    def families(stream):
        vector = world.vector(4, ("mission",), seed=1, stream=stream)
        rows = []
        for _ in range(5):
            vector.reset()
            rows.append([int(game.info().figures[0]) for game in vector.games])
        vector.close()
        return rows

    fixed = families(SeedStream.TRAIN)
    assert all(row == fixed[0] for row in fixed)
    assert len({*fixed[0]}) > 1
    assert families(SeedStream.TRAIN) == fixed
    assert any(row != fixed[0] for row in families(SeedStream.EVALUATE))


# ---- the bot


@pytest.mark.parametrize("level", [*LEVELS, "GoToLocal", "PutNextLocal", "GoToSeqS5R2", "BlockedUnlockPickup"])
def test_the_bot_accomplishes_its_missions(level):
    game = make(level).game()
    for episode in range(5):
        actions = play_by_bot(game, episode)
        assert game.end == EndStatus.TASK_SUCCESSFUL, (level, episode, game.mission)
        assert {*actions} <= {*range(6)}
        info = game.info()
        assert info.success
        assert info.episode_return == pytest.approx(1 - 0.9 * info.steps / game.env.max_steps)
        assert game.message.endswith(b"You have done what you were asked to do.")
    game.close()
