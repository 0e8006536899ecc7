import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import LONG_S, ROOT, children, parents, refusal, wait_for

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors import recorder
from motif_jax.actors.acting import answer
from motif_jax.actors.pool import ActorPool, WorkerFolder, remove_stale_folders
from motif_jax.actors.worker import MANY, read_rows, write_rows
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, open_rows
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import SCREEN_SHAPE, Screen, step_specs
from motif_jax.files import take
from motif_jax.structs import ArraySpec, UserCodeError, UserError

ROLLOUT = 8
OUTPUTS, STARTS = {"value": ArraySpec((), "float32")}, {"core": ArraySpec((3,), "float32")}


class MessagePolicy:
    """A policy that depends on what it sees, and stores something: action = checksum of the message + game mod 9."""

    reads, outputs, starts = ("message", "blstats"), OUTPUTS, {}

    def room(self, count):
        return count + 3

    def __call__(self, observations, first, games):
        assert len(first) == len(games) + 3
        assert not any(array[len(games) :].any() for array in (first, *observations.values()))
        observations = {key: array[: len(games)] for key, array in observations.items()}
        sums = [zlib.crc32(m.tobytes() + b.tobytes()) for m, b in zip(*(observations[key] for key in self.reads))]
        return np.array([value % 9 for value in sums]), {"value": np.array(sums, np.float32)}


def make_pool(task="toy", num_workers=2, games=4, **options) -> ActorPool:
    options = {"rollout_length": ROLLOUT, "hang_timeout_s": LONG_S, "seed": 5} | options
    env = {"task": task, "max_episode_steps": options.pop("max_episode_steps", 60)}
    return ActorPool(
        env, (*POLICY_OBSERVATIONS, "event_blstats"), num_workers=num_workers, games_per_worker=games, **options
    )


def play(pool, policy, rollouts: int):
    """Drives the pool until at least so many rollouts came; yields each with copies of its arrays."""
    while rollouts > 0:
        requests, fulls = pool.poll(0.5)
        if policy is not None:
            answer(pool, requests, policy)
        for full in fulls:
            yield full, {key: array[full.slot].copy() for key, array in pool.rollouts.items()}, pool.ended(full)
            pool.release(full)
            rollouts -= 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rollouts_are_those_of_single_games(num_workers):
    """Every step of every rollout, against the same episode played one step at a time in this process."""
    policy = MessagePolicy()
    with make_pool("score", num_workers, games=4, outputs=policy.outputs) as pool:
        streams: dict = {}
        for full, arrays, ended in play(pool, policy, 40):
            for game in range(pool.layout.group_size):
                stream = streams.setdefault((full.worker, full.group, game), [])
                ends = {at.step: at.info for at in ended if at.game == game}
                stream += [({key: a[t, game] for key, a in arrays.items()}, ends.get(t)) for t in range(ROLLOUT)]
    compared = 0
    for stream in streams.values():
        episode, begin = next(((info.episode, 0) for _, info in stream if info), (None, 0))
        if episode is None:
            continue
        vector = GameVector(
            1, GameSettings(**pool.layout.env), dict(pool.layout.observations), seed=5, next_episode=lambda _: episode
        )
        vector.reset()
        rows = {k: np.zeros((1, *s.shape), s.dtype) for k, s in (step_specs() | vector.observer.specs).items()}
        for step, end in stream[begin:]:
            vector.observe(open_rows(rows))
            assert bool(step["first"]) == bool(vector.first[0])
            for key in ("crop", "message", "blstats", "message_count"):
                assert np.array_equal(rows[key][0], step[key]), key
            value = zlib.crc32(step["message"].tobytes() + step["blstats"].tobytes())
            assert step["action"] == value % 9
            assert step["value"] == np.float32(value)
            rows["terminated"][:] = rows["truncated"][:] = False
            vector.step([int(step["action"])], open_rows(rows))
            for key in ("reward", "terminated", "truncated", "event_message", "event_blstats", "event_message_count"):
                assert np.array_equal(rows[key][0], step[key]), key
            compared += 1
            if end:
                assert end == vector.finished[0][1]
                assert step["terminated"] or step["truncated"]
                break
    assert compared > 100


@pytest.mark.quick
def test_a_closed_pool_leaves_no_processes_and_file_descriptors():
    gc.collect()  # what earlier tests left
    before = children(), set(os.listdir("/proc/self/fd"))
    with make_pool() as pool:
        assert len(pool.processes) == 2
        for _ in play(pool, RandomPolicy(23), 4):
            pass
    assert children() <= before[0]  # those of earlier tests may have ended since
    assert set(os.listdir("/proc/self/fd")) <= before[1]


def test_a_killed_worker_is_replaced():
    with make_pool("score", num_workers=2, games=4) as pool:
        list(play(pool, RandomPolicy(23), 8))
        victim, survivor = pool.processes
        os.kill(victim, signal.SIGKILL)
        seen = set()
        while seen != {0, 1} or pool.restarts == 0:
            for full, _, _ in play(pool, RandomPolicy(23), 1):
                seen = seen | {full.worker} if pool.restarts else seen
        assert pool.restarts == 1
        assert pool.processes[1] == survivor
        assert pool.processes[0] != victim
        assert 0 <= pool.dropped_steps < 4 * ROLLOUT
        list(play(pool, RandomPolicy(23), 20))  # all slots came back


def test_no_episode_is_lost_with_a_worker():
    """Also one that had ended in a rollout which the worker did not live to finish."""
    rng = np.random.default_rng(1)
    with make_pool(num_workers=2, games=4, player="random", rollout_length=64, max_episode_steps=50) as pool:
        numbers: list = []
        killed = set()
        while len(killed) < 5:
            for _ in range(int(rng.integers(1, 100))):
                numbers += [at.info.episode for _, _, ended in play(pool, None, 1) for at in ended]
            killed.add(victim := int(rng.choice(pool.processes)))
            os.kill(victim, signal.SIGKILL)
        last = max(numbers)
        while not set(range(last)) <= set(numbers):
            numbers += [at.info.episode for _, _, ended in play(pool, None, 1) for at in ended]
        while pool.restarts < len(killed):
            list(play(pool, None, 1))
        assert not pool.given_up


@pytest.mark.quick
def test_silence_while_the_pool_was_stopped_does_not_count():
    """Driven by hand: a worker that does nothing while the pool was stopped itself does not hang."""
    given = [(0.5, 7, False), (100.0, 7, False), (200.0, 7, False), (200.5, 7, False), (200.6, 7, False)]
    given += [(300.0, 8, False), (300.5, 8, False), (301.0, 8, True)]  # by this clock, not the machine's
    counted = []
    with make_pool(num_workers=0) as pool:
        handle, shared = pool.handles[0], pool._shared
        handle._looked_at_s, handle.hang_timeout_s = 0.0, 2.55
        for now, beat, idle in given:
            shared["beat"][0], shared["handled"][0] = beat, handle._sent - (not idle)
            counted.append((handle.hangs(now), handle._silent_s))
    assert [hangs for hangs, _ in counted] == [False] * 4 + [True] + [False] * 3
    assert [silent for _, silent in counted] == pytest.approx([0.0, 1.0, 2.0, 2.5, 2.6, 0.0, 0.5, 0.0])


def test_each_step_of_the_warm_up_is_a_heartbeat():
    with make_pool(num_workers=0, games=4, warmup_steps=50) as pool:
        drawn = [random.Random(number + 1).randint(0, 50) for number in range(4)]  # by the games' episodes
        assert pool._shared["beat"][0] == pool.layout.groups + sum(drawn)


def test_a_game_that_hangs_once_is_played_again(monkeypatch, tmp_path):
    hung = tmp_path / "hung"
    monkeypatch.setenv("HANG_ONCE", str(hung))
    with make_pool("faulty_games:Hanging", player="random") as pool:
        while not (hung.exists() and hung.read_text()):
            for full in pool.poll(0.1)[1]:
                pool.release(full)
        handle = pool.handles[pool.processes.index(hanging := int(hung.read_text()))]
        handle.hang_timeout_s = 0.0  # its silence alone counts: live workers have all their time
        while hanging in pool.processes:
            for full in pool.poll(0.5)[1]:
                pool.release(full)
        handle.hang_timeout_s = LONG_S
        numbers: list = []
        while 3 not in numbers:
            numbers += [at.info.episode for _, _, ended in play(pool, None, 1) for at in ended]
        assert pool.restarts == 1
        assert not pool.given_up


def test_an_episode_that_crashes_again_and_again_is_given_up():
    with make_pool("faulty_games:Crashing", player="random") as pool:
        numbers = set()
        while not pool.given_up or not set(range(12)) - {3} <= numbers:
            numbers |= {at.info.episode for _, _, ended in play(pool, None, 1) for at in ended}
        assert pool.given_up == [3]
        assert pool.restarts == 3
        assert 3 not in numbers


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_a_worker_arrives_with_its_traceback(num_workers):
    before = children()
    with pytest.raises(UserCodeError) as caught, make_pool("faulty_games:Raising", num_workers) as pool:
        list(play(pool, RandomPolicy(23), 10))
    assert "a bug in the game" in str(caught.value)
    assert caught.value.sentence == (
        "the game 'faulty_games:Raising' failed with KeyError: 'a bug in the game' (--config.env.task); actor worker 0 "
        "(seed 5, stream train, episodes 0, 1, 2, 3)"
    )
    assert "faulty_games.py" in caught.value.details
    assert "in step" in caught.value.details
    assert children() <= before


@pytest.mark.parametrize(("game", "said"), [
    ("PaysNaN", "gave the reward nan, which is not a finite number of float32"),
    ("PaysTooMuch", "gave the reward inf, which is not a finite number of float32"),
    ("PaysNothing", "failed with TypeError: "),
])  # fmt: skip
def test_an_own_game_with_frames_that_pays_no_number_is_one_sentence(game, said):
    with make_pool(f"faulty_games:{game}", num_workers=0) as pool:
        refusal(lambda: list(play(pool, RandomPolicy(23), 1)), f"the game 'faulty_games:{game}' {said}",
                kind=UserCodeError if game == "PaysNothing" else UserError)  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", ["reward", "core", "game", "value"])
def test_observations_with_the_name_of_another_array_are_refused(name):
    env = {"world": "own_gym:NamedWorld", "options": json.dumps({"name": name})}
    with pytest.raises(UserError, match=rf"an observation called '{name}', a name that is taken: .*--config.env.world"):
        ActorPool(env, (name,), num_workers=0, games_per_worker=2, rollout_length=4, outputs=OUTPUTS, starts=STARTS)


# ---- folders of workers


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[set[int], Path]:
    """Two workers whose parent was killed, and the folder of one."""
    code = """
        import os, signal
        from motif_jax.actors.pool import ActorPool
        pool = ActorPool({"task": "toy"}, ("message",), num_workers=2, games_per_worker=2, rollout_length=4)
        print(*pool.processes, flush=True)
        pool.poll(2.0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    home, run = tmp_path_factory.mktemp("killed"), [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"TMPDIR": str(home)})
    return {int(word) for word in done.stdout.split()}, next(home.glob("motif_jax-*-worker-*"))


@pytest.fixture
def stale(killed, temporary) -> Path:
    folder = shutil.copytree(killed[1], temporary / killed[1].name)
    (folder / "game").mkdir()
    (folder / "game/nle.ttyrec").touch()
    return folder


def test_workers_end_when_their_parent_is_killed(killed):
    workers, _ = killed
    assert len(workers) == 2
    wait_for(lambda: not workers & parents().keys())


@pytest.mark.quick
def test_the_folder_of_a_killed_parent_is_removed_and_that_of_a_living_one_is_not(temporary, stale):
    living = WorkerFolder()
    remove_stale_folders()
    assert list(temporary.iterdir()) == [living.path]
    living.remove()
    assert not list(temporary.iterdir())


# Folders with the name or the content of a worker's folder, which must stay


def workdir(folder: Path, stale: Path) -> None:
    folder.mkdir()
    with take(folder / ".lock"):
        pass


def link_to_such_a_folder(folder: Path, stale: Path) -> None:
    target = folder.parent.parent / "target"
    shutil.copytree(stale, target)
    folder.symlink_to(target)


def of_somebody_else(folder: Path, stale: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder to somebody else")
    shutil.copytree(stale, folder)
    os.chown(folder, 12345, 12345)


@pytest.mark.quick
@pytest.mark.parametrize("make", [workdir, link_to_such_a_folder, of_somebody_else])
def test_what_this_program_did_not_make_stays(temporary, stale, make):
    make(temporary / "motif_jax-7-worker-abcd1234", stale)
    everything = set(temporary.parent.rglob("*"))
    made_by_a_worker = {path for path in everything if stale in (path, *path.parents)}
    remove_stale_folders()
    assert {path for path in everything if not os.path.lexists(path)} == made_by_a_worker


# ---- rows of rollouts, and recorded frames

SLOTS, STEPS, SIZE = MANY + 3, 4, 3
SHAPES = [(STEPS + 1, SIZE, 2, 5), (STEPS, SIZE), (1, SIZE, 6), (STEPS, SIZE, 0)]


@pytest.mark.quick
@pytest.mark.parametrize("count", [1, 2, MANY - 1, MANY, MANY + 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_read_and_written_as_one_by_one(shape, count):
    rng = np.random.default_rng(count)
    array = rng.integers(1, 100, (SLOTS, *shape))
    slots, steps = rng.permutation(SLOTS)[:count], rng.integers(shape[0], size=count)
    pairs, written = list(zip(slots.tolist(), steps.tolist(), strict=True)), array.copy()
    expected = np.concatenate([array[slot, step] for slot, step in pairs])
    places = np.array(pairs)
    assert np.array_equal(read_rows(array, places), expected)
    roomy = read_rows(array, places, room=len(expected) + 5)
    assert roomy.shape[0] == len(expected) + 5
    assert np.array_equal(roomy[: len(expected)], expected)
    assert not roomy[len(expected) :].any()
    values = rng.integers(100, 200, (count * SIZE, *shape[2:]))
    write_rows(array, places, values)
    for number, (slot, step) in enumerate(pairs):
        written[slot, step] = values[number * SIZE : (number + 1) * SIZE]
    assert np.array_equal(array, written)


@pytest.mark.quick
@pytest.mark.parametrize(("steps", "kept"), [(9, True), (10, False), (30, False)])
def test_too_many_bytes_of_pictures_drop_all_pictures(monkeypatch, steps, kept):
    monkeypatch.setattr(recorder, "MOST_PICTURES", 1000)
    blank = np.zeros(SCREEN_SHAPE, np.uint8)
    game = SimpleNamespace(
        screen=lambda: Screen(blank, blank, np.zeros(2, np.uint8)), picture=lambda: bytes(100), message=b"",
        message_count=1, step=lambda action: 0.0,
    )  # fmt: skip
    frames = recorder.RecordedFrames(game)
    for _ in range(steps):
        frames.step(0)
    arrays = recorder.unpacked(frames.packed())
    assert frames.too_many_pictures == (not kept)
    assert len(arrays["chars"]) == len(arrays["message"]) == steps + 1
    assert ("pictures" in arrays) == ("picture_ends" in arrays) == kept
