import fcntl
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, get_config, run_stage, viewed
from real_replay import play
from toy_policies import stopped_after

from motif_jax.captions import decode
from motif_jax.envs.nethack.observations import Observer
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.episodes.playback import plays_the_same_twice
from motif_jax.files import read_json
from motif_jax.pages.players import read_results
from motif_jax.replays.replay import load_replay, save_replay, top_messages
from motif_jax.stages import evaluate, visualize
from motif_jax.stages.evaluate import file_of
from motif_jax.stages.evaluate import play as policy_play


def obtained(config, workdir, episode: str) -> Path:
    config.visualize.update({"policy": "random", "episode": episode})
    return visualize.obtain(visualize.STAGE.view(config.to_dict()), workdir)


def settings(task: str, **values):
    config = get_config(argument=task)
    few = {"policy": "random", "baselines": "", "episodes": 12, "num_workers": 0, "games_per_worker": 4}
    config.evaluate.update(few | values)
    config.env.max_episode_steps = 400
    return config


@pytest.fixture(scope="module")
def dungeon(tmp_path_factory):
    workdir, config = tmp_path_factory.mktemp("dungeon"), settings("score")
    run_stage(evaluate, config, workdir)
    return config, workdir, evaluate.read_rows(workdir / "evaluate/random/episodes.jsonl")


@pytest.mark.journey
def test_the_chosen_episodes_are_kept_frame_by_frame_and_events_are_counted(dungeon):
    _, workdir, rows = dungeon
    folder = workdir / "evaluate/random"
    summary = read_results(workdir)["random"]
    returns = [row["episode_return"] for row in rows]
    assert summary["replays"]["best"] == int(np.argmax(returns))
    assert summary["replays"]["worst"] == int(np.argmin(returns))
    files = {int(file.stem.rpartition("-")[2]) for file in (folder / "replays").iterdir()}
    assert files == set(summary["replays"].values())
    assert sum(summary["ends"].values()) == len(rows)
    mean = np.mean([row["did"].get("gets nowhere", 0) for row in rows])
    assert summary["did"]["gets nowhere"]["mean"] == pytest.approx(mean)
    for number in files:
        replay, row = load_replay(file_of(folder, number), "flag"), rows[number]
        assert replay.steps == row["steps"]
        assert replay.reward.sum(dtype=np.float64) == pytest.approx(row["episode_return"], abs=1e-4)
        assert replay.metadata["figures"] == row
        assert number in {summary["replays"][word] for word in replay.metadata["chosen"]}
        assert np.isnan(replay.z).all()  # nobody has learnt a reward here
        walls, kills = (
            sum(bool(re.search(event, decode(message))) for message in replay.message[1:])
            for event in ("It's a wall|solid stone", "You kill|You destroy|is killed!|is destroyed!")
        )
        assert row["did"].get("gets nowhere", 0) >= walls
        assert row["did"].get("beats a monster", 0) == kills
        # The terminal's first line is where NetHack shows its messages, and the last but one tells the score's depth.
        shown = [decode(line).strip() for line in replay.chars[:, 0]]
        messages = [decode(message).strip() for message in replay.message]
        assert np.mean([bool(text) and line.startswith(text[:60]) for line, text in zip(shown, messages, strict=True)
                        if text]) > 0.8  # fmt: skip
        assert "Dlvl:" in decode(replay.chars[0, 23])
        assert sum(message.times for message in top_messages(replay, 10_000)) == replay.steps
        assert top_messages(replay, 1)[0].times == max(message.times for message in top_messages(replay))
        for late in (False, True):  # the first step is rewarded for the message after it, or the one before it
            known = replay.metadata | {"one_step_late": late}
            numbered = replay._replace(z=np.arange(replay.steps, dtype=np.float32), metadata=known)
            (first,) = (one for one in top_messages(numbered, 10_000) if one.z == 0)
            assert first.text == decode(replay.message[1 - late])


def test_causes_of_death_are_those_on_nethacks_own_list():
    """The page of the best dead is drawn by NetHack itself, a moment before the program ends."""
    game = GameSettings().make(Observer(1, ("tty_chars",)).views(0))
    rng, causes, pages, engine = np.random.default_rng(0), set(), [], game._raw

    def watched(key):
        engine.step(key)
        pages.append(" ".join(decode(game.buffers["tty_chars"].reshape(-1)).split()))

    own = {name: getattr(engine, name) for name in dir(engine) if not name.startswith("_")}
    game._raw = SimpleNamespace(**own | {"step": watched})
    for episode in range(8):
        assert not causes or game.cause
        game.reset(game_seed(1, SeedStream.EVALUATE, episode), episode)
        assert game.cause == ""
        pages.clear()
        while not game.end:
            game.step(int(rng.integers(23)))
        causes.add(game.cause)
        assert any(game.cause.lower() in page.lower() for page in pages), game.cause
    game.close()
    assert len(causes) > 3
    assert all(re.match("(killed|poisoned) by |choked on |died of |fell into ", cause) for cause in causes), causes


def test_an_episode_that_was_not_kept_is_found_again(dungeon, capsys):
    config, workdir, rows = dungeon
    folder = workdir / "evaluate/random"
    kept = read_json(folder / "summary.json")["replays"]
    assert obtained(config, workdir, "best") == file_of(folder, kept["best"])
    other = next(number for number in range(12) if number not in kept.values())
    file = obtained(config, workdir, str(other))
    assert load_replay(file, "flag").metadata["figures"] == rows[other]
    assert folder not in file.parents  # what evaluation keeps is its own
    # One that was never played: it is, and the second time it is there.
    file = obtained(config, workdir, "40")
    assert load_replay(file, "flag").metadata["episode"] == 40
    written = file.stat().st_mtime_ns
    assert obtained(config, workdir, "40") == file
    assert file.stat().st_mtime_ns == written
    # Other games: those that are kept are not taken for them.
    other_games = settings("score")
    other_games.seed = 5
    first = load_replay(obtained(other_games, workdir, "best"), "flag")
    assert (first.metadata["episode"], first.metadata["games"]["seed"]) == (0, 5)
    notice = "'best' episode of random was not kept (--config.visualize.episode), so this is episode 0"
    assert notice in capsys.readouterr().out
    assert load_replay(obtained(other_games, workdir, "40"), "flag").metadata["games"]["seed"] == 5
    first = load_replay(obtained(config, workdir, "longest"), "flag")
    assert first.metadata["figures"] == rows[0]


@pytest.mark.parametrize("game", ["faulty_games:Restless", "own_gym:Dice"])
def test_a_game_that_cannot_be_repeated_is_recorded_while_it_is_played(tmp_path, capsys, game):
    """Every figure is of all episodes, every end has one name, and the replays show what was played."""
    words = "best,worst,longest,3"
    config = settings("toy" if "Dice" in game else game, replays=words)
    config.env.world = game if "Dice" in game else "nethack"
    config.evaluate.num_workers = int("Dice" in game)
    run_stage(evaluate, config, tmp_path / "run")
    folder = tmp_path / "run/evaluate/random"
    rows, summary = evaluate.read_rows(folder / "episodes.jsonl"), read_results(tmp_path / "run")["random"]
    assert "cannot be repeated exactly" in capsys.readouterr().out
    assert summary["repeatable"] is False
    assert len(rows) == 12
    assert all(row["did"] is not None for row in rows)
    assert summary["figures"]["return"]["mean"] == pytest.approx(np.mean([row["episode_return"] for row in rows]))
    assert "n" not in summary["figures"]["return"]  # it is of all episodes
    assert not {"death"} & summary["ends"].keys()  # each has its cause
    assert sorted(summary["replays"]) == sorted(words.split(","))
    kept = {file.name for file in (folder / "replays").iterdir()}
    assert kept == {f"episode-{number:05}.npz" for number in summary["replays"].values()}
    for word, number in summary["replays"].items():
        replay = load_replay(file_of(folder, number), "flag")
        assert word in replay.metadata["chosen"]
        assert replay.reward.sum(dtype=np.float64) == pytest.approx(rows[number]["episode_return"], abs=1e-4)
        if "Dice" in game:
            rolled = [int(decode(message)[-1]) for message in replay.message[1:]]
            assert rolled == pytest.approx(replay.reward)
    # Episodes that were played before are kept with their replays.
    config.evaluate.episodes = 13
    run_stage(evaluate, config, tmp_path / "run")
    assert evaluate.read_rows(folder / "episodes.jsonl")[:12] == rows
    assert sorted(read_json(folder / "summary.json")["replays"]) == sorted(words.split(","))
    assert load_replay(obtained(config, tmp_path / "run", "40"), "flag").steps


def test_a_game_that_can_exist_once_in_a_process_has_replays(tmp_path):
    config = settings("toy", num_workers=1, games_per_worker=1, replays="best,3")
    config.env.world = "own_gym:Only"
    run_stage(evaluate, config, tmp_path)
    assert read_json(tmp_path / "evaluate/random/summary.json")["replays"].keys() == {"best", "3"}


def test_recordings_outlive_an_evaluation_that_is_stopped(tmp_path, monkeypatch):
    """Episodes that were played stay as they are, and the replays of the whole show what was played."""
    config = settings("faulty_games:Restless", replays="best,worst,longest,3")
    folder, recordings = tmp_path / "evaluate/random", tmp_path / "evaluate/random/recordings"

    with stopped_after(8, monkeypatch) as ended:
        run_stage(evaluate, config, tmp_path)
    before = evaluate.read_rows(folder / "episodes.jsonl")
    assert sorted(ended) == [row["episode"] for row in before]
    chosen = evaluate.choose(viewed(config, "evaluate"), {row["episode"]: row for row in before})
    assert {file.name for file in recordings.iterdir()} == {f"episode-{number}.npz" for number in chosen.values()}
    run_stage(evaluate, config, tmp_path)
    rows = evaluate.read_rows(folder / "episodes.jsonl")
    assert len(rows) == 12
    assert [row for row in rows if row["episode"] in ended] == before
    kept = read_json(folder / "summary.json")["replays"]
    assert kept.keys() == {"best", "worst", "longest", "3"}
    for number in kept.values():
        replay = load_replay(file_of(folder, number), "flag")
        assert replay.metadata["figures"] == rows[number]
        assert replay.reward.sum(dtype=np.float64) == pytest.approx(rows[number]["episode_return"], abs=1e-4)
    assert {file.name for file in recordings.iterdir()} == {f"episode-{number}.npz" for number in kept.values()}

    # Version 0.2.0 kept replays alone: those of the same episodes stay.
    shutil.rmtree(recordings)
    (folder / "summary.json").unlink()
    before = {number: load_replay(file_of(folder, number), "flag").reward for number in kept.values()}
    run_stage(evaluate, config, tmp_path)
    assert read_json(folder / "summary.json")["replays"] == kept
    for number, reward in before.items():
        assert (load_replay(file_of(folder, number), "flag").reward == reward).all()


def test_a_recording_is_on_disk_before_the_line_of_its_episode(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(policy_play, "write_lines", killed)
    with pytest.raises(KeyboardInterrupt):
        run_stage(evaluate, settings("faulty_games:Restless", replays="best,worst"), tmp_path)
    assert len([*(tmp_path / "evaluate/random/recordings").iterdir()]) == 2


@pytest.mark.quick
@pytest.mark.parametrize("beside", [True, False])
def test_whether_a_game_plays_the_same_twice_is_tried_as_workers_play_it(beside):
    for world, same in (("Cart", True), ("Dice", False), ("SharedDice", not beside), ("Only", True)):
        if world != "Only" or not beside:  # it can exist once in a process
            env = {"world": f"own_gym:{world}", "max_episode_steps": 20}
            assert plays_the_same_twice(env, 0, beside) == same, world
    assert plays_the_same_twice({"world": "own_worlds:EchoWorld", "max_episode_steps": 20}, 0, beside)
    assert plays_the_same_twice({"task": "score"}, 0, beside)  # the program's own are not tried


# ---- the stage visualize


def showing(**values):
    return get_config(**{f"visualize.{name}": value for name, value in values.items()})


@pytest.fixture
def replay(tmp_path):
    save_replay(tmp_path / "replay.npz", play())
    return tmp_path / "replay.npz"


@pytest.mark.journey
def test_a_replay_is_shown_without_jax(replay, tmp_path):
    code = (
        "import sys; from motif_jax import launch; launch.define_flags(); status = launch.main(sys.argv); "
        "print([name for name in ('jax', 'flax', 'orbax') if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--config=configs/motif.py", f"--workdir={tmp_path}", "--stage=visualize",
         f"--config.visualize.replay={replay}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_one_can_watch_while_another_stage_works(replay, tmp_path, launch):
    with open(tmp_path / ".lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arguments = ("--config=configs/motif.py", f"--workdir={tmp_path}", f"--config.visualize.replay={replay}")
        done = launch(*arguments, "--stage=visualize")
        assert (done.returncode, done.stderr) == (0, "")
        assert "killed by a jackal" in done.stdout
        assert "is using" in launch(*arguments, "--stage=visualize,collect").stderr
