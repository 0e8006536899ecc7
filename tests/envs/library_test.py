"""The library of NetHack that games load: NLE's wheel, or one that was built for this machine."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, change_json
from nle.nethack.nethack import DLPATH

from motif_jax.actors.pool import ActorPool
from motif_jax.envs.nethack import engine, recorded
from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS, open_rows
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import WAIT, step_specs
from motif_jax.envs.worlds import essential, make_world
from motif_jax.structs import UserError

SOME = slice(60, 64)
SAME_EVERYWHERE = "5a0f06fe9577f59a2013eae76030fb9194b46771cbf695adf04476244fe48b99"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where this machine's library lies; a copy of the wheel stands for a built one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine.find_library.cache_clear()
    yield engine.directory()
    engine.find_library.cache_clear()


def test_a_library_that_plays_like_the_wheel_is_kept_and_used(folder, tmp_path, monkeypatch, capsys):
    assert engine.find_library() == (DLPATH, "")
    monkeypatch.setattr(recorded, "PROFILED", 62)
    monkeypatch.setattr(recorded, "TURNS", 1)
    (tmp_path / "own.so").write_bytes(Path(DLPATH).read_bytes())
    recorded.install(tmp_path / "own.so", "cc 1")
    engine.find_library.cache_clear()
    path, description = engine.find_library()
    assert path == str(folder / engine.NAME)
    assert "built for this machine" in description
    assert make_world({"engine": "wheel"}).settings.engine_library == engine.WHEEL_LIBRARY
    assert recorded.play(path, SOME, digest=True)[1] == SAME_EVERYWHERE
    capsys.readouterr()
    for _ in range(2):
        with ActorPool({"task": "score"}, ("message",), num_workers=0, games_per_worker=2, rollout_length=4) as pool:
            assert pool.layout.num_workers == 1
    assert capsys.readouterr().out.count(str(folder)) == 1  # printed once
    assert make_world({"engine": "wheel"}).library == ""
    assert "engine" not in essential({"engine": "wheel"})


def test_a_library_that_plays_another_game_is_not_kept(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "PROFILED", 58)
    (tmp_path / "other.so").write_bytes(Path(DLPATH).read_bytes().replace(b"\0newt\0", b"\0nowt\0"))
    with pytest.raises(UserError, match="does not play the recorded games like NLE's wheel: not kept"):
        recorded.install(tmp_path / "other.so", "cc 1")
    assert engine.find_library().path == DLPATH


@pytest.mark.parametrize(("damage", "why"), [
    (lambda folder: (folder / engine.NAME).write_bytes(b"half"), "another sha256"),
    (lambda folder: (folder / engine.NAME).unlink(), "No such file"),
    (lambda folder: change_json(folder / engine.RECORD, machine="elsewhere"), "another machine"),
])  # fmt: skip
def test_a_library_that_does_not_belong_here_is_not_loaded(folder, damage, why):
    folder.mkdir(parents=True)
    (folder / engine.NAME).write_bytes(Path(DLPATH).read_bytes())
    digest = engine.sha256_of(Path(DLPATH))
    (folder / engine.RECORD).write_text(json.dumps(engine.requirements() | {"sha256": digest}))
    assert engine.find_library().path != DLPATH
    damage(folder)
    engine.find_library.cache_clear()
    path, description = engine.find_library()
    assert path == DLPATH
    assert why in description


def test_a_build_that_cannot_begin_says_why_in_one_sentence():
    command = ["bash", str(ROOT / "launch/engine.sh"), "--source=elsewhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("motif_jax: unexpected argument '--source=elsewhere'")


def moments(path, settings, games, steps, seed):
    settings = dataclasses.replace(settings, library=path)
    vector = GameVector(games, settings, (*OBSERVATIONS, *EVENTS), seed=seed)
    vector.reset()
    specs = step_specs() | vector.observer.specs
    rows = {key: np.zeros((games, *spec.shape), spec.dtype) for key, spec in specs.items()}
    opened, rng = open_rows(rows), np.random.default_rng(seed)
    ended = 0
    for actions in rng.integers(WAIT, len(settings.action_names), size=(steps, games)).tolist():
        rows["terminated"][:] = rows["truncated"][:] = False
        vector.step(actions, opened)
        vector.observe(opened)
        ended += len(vector.finished)
        moment = {key: array.copy() for key, array in rows.items()}
        moment["texts"] = [game.message for game in vector.games]
        moment["finished"] = [(index, info.as_row()) for index, info in vector.finished]
        yield ended, moment
    vector.close()


def same(one, other):
    equal = all(np.array_equal(one[1][key], other[1][key]) for key in one[1] if key != "finished")
    return one[0] == other[0] and equal and str(one[1]["finished"]) == str(other[1]["finished"])  # NaN is NaN


@pytest.fixture
def loop_in_c(tmp_path, monkeypatch):
    """The loop over a group is `group.c`, over the wheel's engines. Returns the sizes of the groups that it stepped."""
    if not shutil.which("gcc"):
        pytest.skip("there is no compiler")
    source, compiled = ROOT / "launch/engine/faster/group.c", tmp_path / "group.so"
    options = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, "-o", compiled, source], check=True)
    play, stepped = engine.find_group(str(compiled)), []

    def count(*arguments):
        play(*arguments)
        stepped.append(arguments[0].value)

    monkeypatch.setattr(engine, "find_group", lambda path: count)
    return stepped


@pytest.mark.quick
@pytest.mark.parametrize("settings", [
    GameSettings(max_episode_steps=60),
    GameSettings(stairs_message=True, max_episode_steps=100, no_progress_steps=8, penalty_step=-0.3),
], ids=lambda settings: str(settings.max_episode_steps))  # fmt: skip
def test_the_loop_in_c_steps_like_the_one_in_python(settings, loop_in_c, monkeypatch):
    in_c = [*moments(DLPATH, settings, 16, 300, 3)]
    assert len(loop_in_c) == 300
    monkeypatch.setattr(engine, "find_group", lambda path: None)
    assert all(map(same, moments(DLPATH, settings, 16, 300, 3), in_c))
    assert len(loop_in_c) == 300
    assert in_c[-1][0] >= 32  # episodes ended


def test_the_loop_in_c_plays_the_recorded_games(loop_in_c):
    assert recorded.play(DLPATH, SOME, digest=True)[1] == SAME_EVERYWHERE
    assert loop_in_c == [4] * 1200


@pytest.mark.slow
@pytest.mark.skipif(
    engine.find_library().path == DLPATH, reason="launch/engine.sh has not built a library on this machine"
)
@pytest.mark.parametrize("settings", [
    GameSettings(max_episode_steps=100), GameSettings(actions="extended", max_episode_steps=100),
    GameSettings(screen="map", max_episode_steps=100), GameSettings(task="staircase", max_episode_steps=100),
    *(GameSettings(character=name, max_episode_steps=100) for name in
      ("val-dwa-law-fem", "wiz-elf-cha-mal", "sam-hum-law-mal", "arc-gno-neu-fem", "@")),
], ids=lambda settings: f"{settings.task}-{settings.actions}-{settings.character}-{settings.screen}")  # fmt: skip
def test_the_built_library_plays_like_the_wheel(settings):
    built, ended = engine.find_library().path, 0
    for one, other in zip(moments(DLPATH, settings, 16, 800, 3), moments(built, settings, 16, 800, 3), strict=True):
        assert same(one, other)
        ended = one[0]
    assert ended >= 112
