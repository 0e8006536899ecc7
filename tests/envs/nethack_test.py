"""One game: against NLE's own environment, and where Motif differs from it."""

import concurrent.futures
import ctypes
import itertools
import multiprocessing
import os
import random
import types

import gymnasium
import nle.env  # noqa: F401  (registers)
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from nle import nethack
from nle.env.tasks import NetHackChallenge

from motif_jax.actors.players import ScriptedPlayers
from motif_jax.envs.nethack import game as rules
from motif_jax.envs.nethack.game import FIGURES, KEYS, ORACLE_GLYPH, TURNS, NetHackGame
from motif_jax.envs.nethack.observations import FRAME, Observer
from motif_jax.envs.nethack.tasks import CHARACTERS, TASKS, extended_ids
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.world import GameSeed, SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus
from motif_jax.system.metrics import resident_mib

ALL_FRAMES = ("tty_chars", "tty_colors", "tty_cursor", "glyphs", "blstats", "message")
SEED = GameSeed(core=12, disp=34, player=0)


def make_game(task="score", **settings) -> NetHackGame:
    return NetHackGame(GameSettings(task, **settings), Observer(1, (), extra_frames=ALL_FRAMES).views(0))


def play(game: NetHackGame, steps: int, seed: int = 0):
    """Random play, a tuple per step of everything that can be seen."""
    rng = random.Random(seed)
    for _ in range(steps):
        reward = game.step(rng.randrange(23))
        yield reward, game.message, int(game.end), *(bytes(game.buffers[key]) for key in ALL_FRAMES)
        if game.end:
            return


@pytest.mark.quick
def test_a_game_starts_if_its_first_square_asks_for_a_name():
    game = make_game()
    game.reset(GameSeed(core=1507505192371012292, disp=1802302540872684302, player=0))
    assert b"Call a scroll" not in bytes(game.buffers["tty_chars"])
    for _ in range(3):
        game.step(KEYS.index(ord(".")))
    assert game.end == EndStatus.RUNNING
    assert game.buffers["blstats"][20] > 1  # turns passed


@pytest.mark.parametrize("core", [1, 2, 3])
def test_play_is_that_of_nle_with_the_eat_fix(core):
    """NLE's own environment, given the keys that the specification demands, shows and pays the same."""
    keys = tuple(range(256))
    reference = gymnasium.make("NetHackScore-v0", actions=keys, observation_keys=ALL_FRAMES, fix_moon_phase=True)
    reference.unwrapped.seed(core, core + 1, False)
    observation, _ = reference.reset()
    game = make_game()
    game.reset(GameSeed(core, core + 1, 0))
    rng = random.Random(core)
    steps = eaten = 0
    for steps in range(1, 3001):
        action = rng.randrange(23)
        key = KEYS[action]
        text = bytes(observation["message"]).rstrip(b"\0").decode()
        if "What do you want to eat" in text:
            offered = text[text.index("[") + 1] if "[" in text else " "
            key = ord(offered) if key == ord("y") and offered.isalpha() else ord(" ")
            eaten += 1
        observation, reward, terminated, truncated, _ = reference.step(key)
        ours = game.step(action)
        assert ours == pytest.approx(reward)
        assert bool(game.end) == (terminated or truncated)
        if game.end:
            assert game.end == EndStatus.DEATH
            break
        for name in ALL_FRAMES:
            assert np.array_equal(game.buffers[name], observation[name]), (name, steps)
    assert steps > 50
    assert eaten or steps < 500
    reference.close()
    game.close()


@pytest.mark.quick
def test_the_game_starts_at_a_fixed_time():
    game = make_game()
    game.reset(SEED)
    library = ctypes.CDLL(game._engine.dlpath, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    birthday = ctypes.c_long.in_dll(library, "ubirthday").value
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))
    assert birthday == SEED.core


@pytest.mark.quick
def test_training_and_evaluation_never_play_the_same_game():
    games = itertools.product(range(3), SeedStream, range(200))
    seeds = {(game_seed(*game).core, game[1] == SeedStream.EVALUATE) for game in games}
    assert len(seeds) == 1800
    assert all(core % 2 == evaluation for core, evaluation in seeds)


@pytest.mark.quick
def test_an_eat_prompt_whose_first_offer_is_not_a_letter_is_declined():
    for offers in ("[*]", "[$ab or ?*]", "[]", "[\xe9a or ?*]", ""):
        assert rules.offered_key(ord("y"), f"What do you want to eat? {offers} ".encode("latin-1")) == ord(" ")


def descend(game: NetHackGame, episode: int, steps: int = 3000):
    player = ScriptedPlayers("explorer", make_world({}), 1)
    seed = game_seed(5, SeedStream.TRAIN, episode)
    player.begin(0, seed)
    game.reset(seed, episode)
    for _ in range(steps):
        yield game.step(player.choose(0, game))
        if game.end:
            return


def test_staircase_pays_50_once_and_ends():
    game, continual = make_game("staircase"), make_game("staircase_continual")
    reached = 0
    for episode in range(4):
        rewards = list(descend(game, episode, 1500))
        if game.success:
            reached += 1
            assert game.end == EndStatus.TASK_SUCCESSFUL
            assert rewards[-1] == 50.0
            again = list(descend(continual, episode, 1500))
            assert sum(again) == 50.0
            assert continual.end in (EndStatus.RUNNING, EndStatus.DEATH)
            assert continual.success
        assert sum(rewards[:-1]) == 0.0  # no step penalty in goal tasks
    assert reached >= 2


def put_oracle_beside_hero(game: NetHackGame, dx: int, dy: int) -> None:
    x, y = game.buffers["blstats"][[rules.X, rules.Y]]
    game.buffers["glyphs"][y + dy, x + dx] = ORACLE_GLYPH


@pytest.mark.quick
def test_oracle_must_stand_beside_the_hero():
    assert nethack.permonst(nethack.glyph_to_mon(ORACLE_GLYPH)).mname == "Oracle"
    game = make_game("oracle")
    game.reset(SEED)
    assert game.goal_reward(b"") == 0.0
    put_oracle_beside_hero(game, 2, 0)
    assert game.goal_reward(b"") == 0.0
    put_oracle_beside_hero(game, -1, 1)
    assert game.goal_reward(b"") == 50.0
    assert game.end == EndStatus.TASK_SUCCESSFUL


@pytest.mark.quick
@pytest.mark.parametrize(("condition", "reference", "paid"), [
    (0, False, True), (512, False, False), (512 | 1024, False, False),
    (0, True, True), (512, True, False), (512 | 1024, True, True),  # the published test compares the whole mask
])  # fmt: skip
def test_sober_oracle_requires_not_hallucinating(condition, reference, paid):
    game = make_game("oracle_sober", reference_sober=reference)
    game.reset(SEED)
    put_oracle_beside_hero(game, 1, 1)
    game.buffers["blstats"][rules.CONDITION] = condition
    assert (game.goal_reward(b"") == 50.0) == paid


@pytest.mark.parametrize("mode", ["exp", "square", "linear", "always"])
def test_step_penalty_modes_are_those_of_nle(mode):
    options = {"penalty_mode": mode, "observation_keys": ALL_FRAMES, "fix_moon_phase": True}
    reference = gymnasium.make("NetHackScore-v0", **options).unwrapped
    reference.seed(7, 8, False)
    reference.reset()
    game = make_game(penalty_mode=mode)
    game.reset(GameSeed(7, 8, 0))
    wait, wall = KEYS.index(ord(".")), KEYS.index(ord("<"))  # time passes, time does not
    for action in (wait, wall, wall, wall, wait, wall, wall):
        assert game.step(action) == pytest.approx(reference.step(action)[1])
    reference.close()


@pytest.mark.quick
def test_a_game_that_stands_still_ends_when_nle_ends_it():
    patience, most = 12, 300
    game = make_game(no_progress_steps=patience, max_episode_steps=most, penalty_step=0.0)
    buffers = game.buffers
    rng, ends = np.random.default_rng(2), []
    for episode in range(30):
        game.reset(game_seed(7, SeedStream.EVALUATE, episode), episode)
        twin = types.SimpleNamespace(_max_episode_steps=most, no_progress_timeout=patience, _blstats_index=0, _steps=0)
        twin._turns, twin._no_progress_count = int(buffers["blstats"][TURNS]), 0
        while not game.end:
            game.step(int(rng.choice([0, 17, 18, 2]) if rng.random() < 0.9 else rng.integers(23)))
            twin._steps += 1
            cut = NetHackChallenge._check_abort(twin, [buffers["blstats"]])
            if game.end != EndStatus.DEATH:
                assert cut == (game.end == EndStatus.ABORTED)
        ends.append(game.steps)
    game.close()
    assert len(set(ends)) > 3
    assert min(ends) < most


@pytest.mark.quick
def test_all_roles_are_played_and_the_seed_decides_which():
    game = make_game(character="@")
    buffers = game.buffers

    def role(episode):
        game.reset(game_seed(1, SeedStream.EVALUATE, episode), episode)
        x, y = buffers["blstats"][:2]
        return nethack.permonst(nethack.glyph_to_mon(int(buffers["glyphs"][y, x]))).mname[:3]

    roles = [role(episode) for episode in range(120)]
    assert {name.lower() for name in roles} == set(CHARACTERS[0])
    assert [role(episode) for episode in range(20)] == roles[:20]
    game.close()


def test_death_keeps_its_message_and_its_frame():
    """Pages turned after death show an empty message and a bottom line of zeros; the event is what was said last."""
    game = make_game()
    deaths = 0
    for episode in range(12):
        game.reset(game_seed(9, SeedStream.TRAIN, episode), episode)
        list(play(game, 3000, seed=episode))
        if game.end == EndStatus.DEATH:
            deaths += 1
            assert b"You die" in game.message
            assert not game.buffers["blstats"].any()  # what the engine left behind
            info = game.info()
            assert info.named(FIGURES)["depth"] >= 1
            assert info.named(FIGURES)["turns"] > 1
            assert info.end_status == 1
            assert bytes(game.last_frame["message"]).rstrip(b"\0") == game.message
            assert b"You die" in bytes(game.last_frame["tty_chars"][0])
    assert deaths >= 2


def test_scout_counts_what_is_drawn_of_every_level_visited():
    game = make_game()
    levels: dict = {}
    for _ in descend(game, 1):
        if not game.end:
            here = tuple(game.buffers["blstats"][[rules.BRANCH, rules.STAIRS_LEVEL]])
            levels[here] = int((game.buffers["glyphs"] != nethack.GLYPH_CMAP_OFF).sum())
            assert game.info().named(FIGURES)["scout"] == sum(levels.values())
    assert len(levels) >= 2
    assert game.info().named(FIGURES)["max_depth"] >= 2


def memory_of_resets() -> tuple[float, float]:
    """Resident memory after 100 games, and what 900 more add to it, in MiB."""
    game = make_game()
    before = 0.0
    for number in range(1000):
        if number == 100:
            before = resident_mib()
        game.reset(game_seed(3, SeedStream.TRAIN, number), number)
        list(play(game, 12))
    return before, resident_mib() - before


def test_memory_is_flat_over_a_thousand_resets():
    alone = multiprocessing.get_context("spawn")  # where no other test's memory is counted
    with concurrent.futures.ProcessPoolExecutor(1, alone) as process:
        before, grown = process.submit(memory_of_resets).result()
    assert before > 10
    assert grown < 8, f"{grown:.1f} MiB in 900 resets"


@pytest.mark.quick
def test_progression_is_that_of_the_best_frame():
    """Against a slow twin that looks every frame up, as BALROG does."""
    chances = {f"Dlvl:{at}": chance for at, chance in enumerate(rules.BY_DEPTH, 1)}
    chances |= {f"Xp:{at}": chance for at, chance in enumerate(rules.BY_EXPERIENCE, 1)}
    buffers = {name: np.zeros(spec.shape, spec.dtype) for name, spec in FRAME.items()}
    game = NetHackGame(GameSettings(max_episode_steps=2000), buffers)
    rng, progressions = np.random.default_rng(1), []
    for episode in range(12):
        game.reset(game_seed(3, SeedStream.EVALUATE, episode), episode)
        best = 0.0
        while not game.end:
            game.step(int(rng.integers(game.num_actions)))
            frame = game.last_frame["blstats"] if game.end else buffers["blstats"]
            best = max(best, chances.get(f"Dlvl:{frame[12]}", 0.0), chances.get(f"Xp:{frame[18]}", 0.0))
        assert game.info().named(FIGURES)["progression"] == best
        progressions.append(best)
    game.close()
    assert max(progressions) > 0


# ---- the tasks as environments of gymnasium


@pytest.mark.quick
@pytest.mark.parametrize("name", [*(task.name for task in TASKS.values()), *extended_ids(), "Toy-v0"])
@pytest.mark.filterwarnings("ignore:.*(not within the observation space|render_modes).*")
def test_gymnasiums_own_checker_passes(name):
    env = gymnasium.make(f"motif_jax/{name}")
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


@pytest.mark.quick
def test_observations_are_not_overwritten_by_later_steps():
    env = gymnasium.make("motif_jax/NetHackScore-v1", observations=("message", "blstats"), max_episode_steps=None)
    first, _ = env.reset(seed=1)
    kept = {key: value.copy() for key, value in first.items()}
    for _ in range(20):
        env.step(19)
    assert all(np.array_equal(first[key], kept[key]) for key in kept)
    env.close()


def test_stable_baselines_trains_on_them():
    stable_baselines3 = pytest.importorskip("stable_baselines3", reason="bash launch/test.sh installs it")
    import torch

    torch.set_num_threads(1)  # threads that wait for each other on a busy machine take ten times as long
    env = gymnasium.make("motif_jax/NetHackScore-v1")
    agent = stable_baselines3.PPO("MultiInputPolicy", env, n_steps=128, batch_size=64, n_epochs=1, seed=1, device="cpu")
    extractors = agent.policy.features_extractor.extractors
    assert extractors.keys() == env.observation_space.keys()
    assert all(isinstance(one, torch.nn.Flatten) for one in extractors.values())  # nothing is taken for a picture
    agent.learn(384)
    assert agent.num_timesteps == 384
    env.close()
