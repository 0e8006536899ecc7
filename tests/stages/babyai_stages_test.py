"""BabyAI-Text through the stages: a small policy is trained and evaluated beside the bot, shown, and reported."""

import numpy as np
import pytest
from conftest import get_config

pytest.importorskip("minigrid", reason="needs the extra [babyai]: bash launch/test.sh installs it")

from motif_jax import load_policy
from motif_jax.devices.checkpoints import find_checkpoints, reading
from motif_jax.files import read_json, read_lines
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import load_replay
from motif_jax.stages import collect, evaluate, report, train_policy
from motif_jax.stages.evaluate.replays import file_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimised")]


def config_of(**policy):
    config = get_config("quickstart.py", "toy")
    config.env.world, config.env.max_episode_steps = "babyai", 5000
    config.policy.update({
        "network": "general", "num_workers": 0, "games_per_worker": 8, "groups": 2, "batch_size": 128,
        "rollout_length": 16, "warmup_steps": 0, "train_for_env_steps": 512, "train_for_seconds": 0.0,
        "extrinsic_coefficient": 1.0, "intrinsic_coefficient": 0.0, "synchronous": True, "tensorboard": False,
    } | policy)  # fmt: skip
    config.evaluate.update({
        "episodes": 4, "num_workers": 0, "beside": "bot", "replays": "best", "games_per_worker": 2,
    })  # fmt: skip
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config, workdir = config_of(), tmp_path_factory.mktemp("babyai")
    for stage in (train_policy, evaluate, report):
        stage.STAGE.check(stage.STAGE.view(config))
        stage.STAGE.run(stage.STAGE.view(config), workdir)
    return workdir


def test_the_general_network_learns_from_what_the_player_sees_and_the_mission(trained):
    *_, last = read_lines(trained / "policy/metrics.jsonl")
    assert last["env_steps"] == 512
    with reading(find_checkpoints(trained, "policy")) as checkpoints:
        _, _, facts = checkpoints.readable("last")
    assert facts["model"]["reads"] == {
        "image": [[7, 7, 3], "uint8", "grid", 11], "mission": [[320], "uint8", "text", 0],
    }  # fmt: skip
    act = load_policy(trained)({"image": np.ones((7, 7, 3), np.uint8), "mission": np.zeros(320, np.uint8)})
    assert act.probabilities.shape == (6,)
    assert facts["config"]["env"]["babyai"]["level"] == "GoToLocal"


def test_it_is_evaluated_on_the_games_of_the_bot(trained):
    rows = {name: list(read_lines(trained / f"evaluate/{name}/episodes.jsonl")) for name in ("bot", "policy-512")}
    bot, policy = (sorted(found, key=lambda row: row["episode"]) for found in rows.values())
    assert [row["bot_steps"] for row in policy] == [row["steps"] for row in bot]
    assert all(row["success"] and row["family"] == 0 for row in bot)
    assert all(row["steps"] <= 64 for row in policy)


def test_its_episodes_can_be_watched(trained):
    summary = read_json(trained / "evaluate/bot/summary.json")
    replay = load_replay(file_of(trained / "evaluate/bot", next(iter(summary["replays"].values()))), "--flag")
    assert replay.about["action_names"][0] == "turn left"
    assert bytes(replay.chars[0, 0]).startswith(b"go to ")
    assert any(b"You see a " in bytes(row) for row in replay.chars[0])
    assert bytes(replay.message[-1]).startswith(b"You have done what you were asked to do.")
    page = (trained / "report/index.html").read_text()
    assert "GoToLocal" in page
    assert "bot steps" in page


def test_the_bots_play_is_collected_with_captions(tmp_path):
    config = config_of()
    config.env.babyai.level = "MixedTrainLocal"
    config.collect.update({"num_pairs": 40, "num_workers": 0, "games_per_worker": 2, "collector": "bot:0.5,random:0.5"})
    collect.check(collect.STAGE.view(config))
    collect.run(collect.STAGE.view(config), tmp_path)
    dataset = PairDataset(tmp_path / "dataset")
    texts = {bytes(message).rstrip(b"\0").decode() for message in np.asarray(dataset.data["message"]).reshape(-1, 256)}
    assert any(text.startswith("You pick up a ") for text in texts)
    assert "The way ahead is free." in texts
