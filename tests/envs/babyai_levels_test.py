"""BabyAI-Text's games: levels, held-out pairs, families by seed, the bot, what is seen and said, what is refused."""

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from minigrid.minigrid_env import MiniGridEnv

from motif_jax.envs.babyai.game import DOOR_COLOURS, LEVELS, BotPlayer, LocalLevel, all_reached, makers_of, plan
from motif_jax.envs.babyai.words import HELD_OUT, describe
from motif_jax.envs.gym_world import quiet
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus

MIXED = "MixedTrainLocal"


def make(level="GoToLocal", **values):
    return make_world({"world": "babyai", "babyai": {"level": level, **values}})


def begin(game, episode):
    game.reset(game_seed(0, SeedStream.TRAIN, episode), episode)


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
    game, player = make(level).game(), BotPlayer()
    for episode in range(5):
        player.begin(random.Random(episode))
        begin(game, episode)
        while not game.end:
            action = player.choose(game)
            assert action in range(6)
            game.step(action)
        assert game.end == EndStatus.TASK_SUCCESSFUL, (level, episode, game.mission)
        info = game.info()
        assert info.success
        assert info.episode_return == pytest.approx(1 - 0.9 * info.steps / game.env.max_steps)
        assert game.message.endswith(b"You have done what you were asked to do.")
    game.close()


# ---- what is observed


def sentences_of_objects(env) -> list[str]:
    """The sentences from MiniGrid's own objects, made in another way than by `describe`: with ranks, then sorted."""
    grid, visible = env.gen_obs_grid()
    sentences = []
    if env.carrying:
        sentences.append((0, 0, 0, f"You carry a {env.carrying.color} {env.carrying.type}"))
    for rank, (side, step) in enumerate({"forward": (0, -1), "left": (-1, 0), "right": (1, 0)}.items()):
        x, y, count = 3, 6, 0
        while 0 <= x + step[0] < 7 and 0 <= y + step[1] < 7:
            x, y, count = x + step[0], y + step[1], count + 1
            thing = grid.get(x, y) if visible[x, y] else None
            if thing is not None:
                if thing.type == "wall":
                    sentences.append((1, rank, 0, f"You see a wall {count} step{'s' * (count > 1)} {side}"))
                break
    for x in range(7):
        for y in range(7):
            thing = grid.get(x, y) if visible[x, y] else None
            if thing is None or thing.type == "wall" or (x, y) == (3, 6):
                continue
            state = ""
            if thing.type == "door":
                state = "open " if thing.is_open else "locked " if thing.is_locked else "closed "
            where = [(abs(x - 3), "right" if x > 3 else "left"), (6 - y, "forward")]
            place = " and ".join(f"{count} step{'s' * (count > 1)} {side}" for count, side in where if count)
            sentences.append((2, x, y, f"You see a {state}{thing.color} {thing.type} {place}"))
    return [text for *_, text in sorted(sentences)]


@pytest.mark.parametrize("level", [MIXED, "GoToObjDoor", "GoToSeqS5R2", "GoToObjMazeS4", "BlockedUnlockPickup"])
def test_images_are_those_of_minigrid_and_sentences_those_of_the_objects_in_them(level):
    """Also through open doors, from within them, and with something in one's hands."""
    game, rng, shown = make(level).game(), np.random.default_rng(0), set()
    for episode in range(4):
        begin(game, episode)
        planned = plan(game.env)
        for _ in range(60):
            if game.end:
                break
            image, sentences = MiniGridEnv.gen_obs(game.env)["image"], sentences_of_objects(game.env)
            assert np.array_equal(game.seen["image"], image)
            assert describe(image) == sentences
            standing = game.env.grid.get(*game.env.agent_pos)
            shown |= {"within a door"} if standing is not None and standing.type == "door" else set()
            shown |= {word for word in ("carry", "door") for text in sentences if word in text}
            action = next(planned, None) if episode % 2 else None  # two episodes of the bot, two by chance
            game.step(int(rng.choice(6, p=[0.15, 0.15, 0.4, 0.1, 0.1, 0.1])) if action is None else action)
    missing = {MIXED: {"within a door"}, "GoToObjMazeS4": {"carry"}}.get(level, set())
    assert shown == {"carry", "door", "within a door"} - missing


# ---- bad input


@pytest.mark.quick
def test_without_minigrid_one_sentence_says_what_to_install():
    code = (
        "import sys; sys.modules['minigrid'] = None\n"
        "from motif_jax.envs.worlds import make_world; from motif_jax.structs import UserError\n"
        "world = make_world({'world': 'babyai'}); world.specs, world.players, world.action_names\n"
        "try: world.check()\n"
        "except UserError as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "needs minigrid: pip install 'motif_jax[babyai]'" in output
    assert len(output.splitlines()) == 1


def test_a_shuffled_mission_changes_what_players_read_and_not_the_game():
    own, shuffled = (make(mission=name).game() for name in ("own", "shuffled"))
    differ = 0
    for episode in range(20):
        for game in (own, shuffled):
            begin(game, episode)
        assert str(own.env.mission) == str(shuffled.env.mission) == own.mission
        np.testing.assert_array_equal(own.seen["image"], shuffled.seen["image"])
        differ += own.mission != shuffled.mission
        assert shuffled.mission in bytes(shuffled.seen["prompt"]).decode()
    assert differ >= 15
