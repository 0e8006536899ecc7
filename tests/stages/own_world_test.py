"""A world of a user's own through the stages, with nothing but its class."""

import numpy as np
import pytest
from conftest import get_config, run_stage

from motif_jax.files import read_json
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import load_replay
from motif_jax.replays.story import describe
from motif_jax.replays.story import summary as told
from motif_jax.stages import annotate, collect, evaluate, report
from motif_jax.stages.evaluate.replays import file_of
from motif_jax.stages.evaluate.summary import read_rows


@pytest.fixture(scope="module")
def corridor(tmp_path_factory):
    """A config of the world in tests/envs/own_worlds.py, and the workdir of its stages."""
    config, workdir = get_config("quickstart.py", "toy"), tmp_path_factory.mktemp("corridor")
    config.env.world, config.env.max_episode_steps = "own_worlds:Corridor", 30
    config.collect.update({"num_pairs": 60, "num_workers": 1, "games_per_worker": 2, "collector": "random"})
    config.evaluate.update({"episodes": 5, "num_workers": 0, "games_per_worker": 2, "policy": "random", "beside": ""})
    lexicon = workdir.with_name("corridor.toml")
    lexicon.write_text("[[rule]]\nname = 'sees the light'\npattern = 'light'\nworth = { progress = 1 }\n")
    config.annotate.lexicon = str(lexicon)
    for stage in (collect, annotate, evaluate, report):
        run_stage(stage, config, workdir)
    return config, workdir


@pytest.mark.journey
def test_its_dataset_has_the_captions_and_what_the_world_says_of_episodes(corridor):
    dataset = PairDataset(corridor[1] / "dataset")
    texts = {bytes(message).rstrip(b"\0") for message in np.asarray(dataset.data["message"]).reshape(-1, 256)}
    assert texts == {b"You walk.", b"You see the light."}
    assert dataset.data.keys() == {"message", "rewards"}
    assert dataset.info.keys() == {"steps", "episode", "start"}
    assert read_json(corridor[1] / "dataset/dataset.json")["task"] == "own_worlds:Corridor"


@pytest.mark.journey
def test_its_figures_are_evaluated_and_shown(corridor):
    _, workdir = corridor
    rows = read_rows(workdir / "evaluate/random/episodes.jsonl")
    summary = read_json(workdir / "evaluate/random/summary.json")
    assert summary["figures"]["turns_back"]["mean"] == pytest.approx(np.mean([row["turns_back"] for row in rows]))
    assert summary["figures"]["luck"]["mean"] == 0.5
    assert "score" not in summary["figures"]
    page = (workdir / "report/index.html").read_text()
    assert "turns back" in page
    for word in ("NetHack", "dungeon", "gold</td>"):
        assert word not in page
    replay = load_replay(file_of(workdir / "evaluate/random", next(iter(summary["replays"].values()))), "--flag")
    assert "turns_back" in replay.metadata["figures"]
    assert "turns back" in told(describe(replay), 3)
