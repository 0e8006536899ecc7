"""BabyAI-Text's games: what is seen, sentences of real rooms, what is refused."""

import subprocess
import sys

import numpy as np
import pytest
from babyai_games import MIXED, begin, make
from minigrid.core.grid import Grid
from minigrid.minigrid_env import MiniGridEnv

from motif_jax.envs.babyai.bot import plan
from motif_jax.envs.babyai.prompt import describe
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.structs import UserError

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


@pytest.mark.parametrize("level", [MIXED, "GoToObjDoor", "BlockedUnlockPickup"])
def test_sentences_of_real_rooms_are_those_of_the_objects_in_them(level):
    game, rng, carried, doors = make(level).game(), np.random.default_rng(0), 0, 0
    for episode in range(4):
        begin(game, episode)
        for _ in range(40):
            if game.end:
                break
            wanted = sentences_of_objects(game.env)
            assert describe(game.seen["image"]) == wanted
            carried += wanted[0].startswith("You carry") if wanted else 0
            doors += any("door" in text for text in wanted)
            game.step(int(rng.choice(6, p=[0.15, 0.15, 0.4, 0.2, 0.05, 0.05])))
    assert carried or level == "GoToObjDoor"
    assert doors or level == MIXED
    assert Grid.decode(game.seen["image"])[0].width == 7


@pytest.mark.parametrize("level", [MIXED, "GoToSeqS5R2", "GoToObjMazeS4", "BlockedUnlockPickup"])
def test_images_are_those_of_minigrid(level):
    """Also through open doors, from within them, and with something in one's hands."""
    game, rng, held, within = make(level).game(), np.random.default_rng(0), 0, 0
    for episode in range(4):
        begin(game, episode)
        planned = plan(game.env)
        for _ in range(60):
            if game.end:
                break
            wanted = MiniGridEnv.gen_obs(game.env)
            assert np.array_equal(game.seen["image"], wanted["image"])
            held += game.env.carrying is not None
            standing = game.env.grid.get(*game.env.agent_pos)
            within += standing is not None and standing.type == "door"
            action = next(planned, None) if episode % 2 else None  # two episodes of the bot, two by chance
            game.step(int(rng.choice(6, p=[0.15, 0.15, 0.4, 0.1, 0.1, 0.1])) if action is None else action)
    assert held or level in ("GoToSeqS5R2", "GoToObjMazeS4")
    assert within or level == MIXED


# ---- bad input


def test_a_variable_of_minigrids_that_changes_the_game_is_refused(monkeypatch):
    monkeypatch.setenv("BABYAI_DONE_ACTIONS", "1")
    with pytest.raises(UserError, match="BABYAI_DONE_ACTIONS is set: unset it"):
        check_world({"world": "babyai"})


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
    assert "needs minigrid, which the extra [babyai] installs: pip install 'motif_jax[babyai]'" in output
    assert len(output.splitlines()) == 1


def test_a_shuffled_mission_changes_what_players_read_and_not_the_game():
    own, shuffled = (
        make_world({"world": "babyai", "babyai": {"mission": name}}).game() for name in ("own", "shuffled")
    )
    differ = 0
    for episode in range(20):
        for game in (own, shuffled):
            game.reset(game_seed(0, SeedStream.TRAIN, episode), episode)
        assert str(own.env.mission) == str(shuffled.env.mission) == own.mission
        np.testing.assert_array_equal(own.seen["image"], shuffled.seen["image"])
        differ += own.mission != shuffled.mission
        assert shuffled.mission in bytes(shuffled.seen["prompt"]).decode()
    assert differ >= 15
