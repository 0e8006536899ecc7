"""Stages are killed many times, at moments all over their lives, and end as if nothing had happened."""

import functools
import hashlib
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from chat_server import ChatServer
from conftest import ROOT, get_config, viewed, wait_for, worker_processes
from small_dataset import MANY, random_pairs, write_dataset
from victims import Outcome, Victims

from motif_jax.devices.checkpoints import reading
from motif_jax.files import read_json, read_lines
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import load_replay
from motif_jax.stages import annotate, train_policy


class Trial:
    def __init__(self, victims: Victims, folder: Path, stage: str, *arguments: str, **constants: object):
        self.victims, self.folder, self.arguments = victims, folder, [*arguments, f"--stage={stage}"]
        self.constants = {name.replace("__", "."): value for name, value in constants.items()}
        self.killed: list[Outcome] = []
        self.terminate = stage in ("collect", "annotate", "train_reward")  # others end with 0, and say what they saved

    def kill(self, prepare: Callable[[Path], object], check: Callable[[Path], object], count: int = 4) -> None:
        """Kills it so often, and lets it finish in between; `check` first gets the workdir of an undisturbed run.

        What is in the workdir after a kill depends on the changes of files before it alone, so each kill is at one of
        them: spread evenly over that run, in random order.
        """
        workdir = self.begin(prepare, "straight")
        changes = self.go_on(workdir).changes
        check(workdir)
        rng, number = random.Random(0), 0
        workdir = self.begin(prepare, str(number))
        while len(self.killed) < count:
            for part in rng.sample(range(count), count):
                at = 1 + int((part + rng.random()) / count * changes)
                outcome = self.go_on(workdir, at, signal.SIGTERM if self.terminate and part % 3 > 1 else signal.SIGKILL)
                if outcome.status == 0:
                    check(workdir)
                    number += 1
                    assert number < 4 * count, "it is hardly ever hit"
                    workdir = self.begin(prepare, str(number))
        self.go_on(workdir)
        check(workdir)

    def begin(self, prepare: Callable[[Path], object], name: str) -> Path:
        workdir = self.folder / name / "run"
        workdir.mkdir(parents=True)
        prepare(workdir)
        return workdir

    def go_on(self, workdir: Path, at_change: int = 0, number: int = signal.SIGKILL) -> Outcome:
        outcome = self.victims.run(workdir, self.arguments, at_change, number, self.constants)
        assert outcome.status in (0, *((-number, 128 + number) if at_change else ())), outcome.output
        assert "Traceback" not in outcome.output
        wait_for(lambda: not worker_processes(outcome.process))
        if outcome.status == -signal.SIGKILL:
            self.killed.append(outcome)
        return outcome


class Same:
    def __init__(self, describe: Callable[[Path], object]):
        self.describe, self.first = describe, None

    def __call__(self, workdir: Path) -> None:
        found = self.describe(workdir)
        self.first = found if self.first is None else self.first
        assert found == self.first


@pytest.fixture(scope="module")
def victims():
    with Victims(ROOT) as started:
        yield started


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def files(folder: Path) -> dict[str, str]:
    found = {str(file.relative_to(folder)): digest(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    assert not [name for name in found if name.endswith(".tmp")]
    return found


def test_collect(victims, tmp_path):
    trial = Trial(
        victims, tmp_path, "collect", "--config=configs/quickstart.py", "--config.collect.num_pairs=1000",
        "--config.env.max_episode_steps=100", "--config.collect.commit_every_s=0.05",
    )  # fmt: skip

    def describe(workdir):
        assert not (workdir / "dataset.partial").exists()
        dataset = PairDataset(workdir / "dataset")
        assert len(dataset) == 1000
        of_this_run = ("run.json", "index/source.json", "config.json")
        return {name: data for name, data in files(dataset.path).items() if name not in of_this_run}

    trial.kill(lambda workdir: None, Same(describe))


def pairs(workdir: Path) -> None:
    write_dataset(workdir / "dataset", random_pairs(300, events=MANY))


def labels(workdir: Path) -> object:
    name = "server_msg_defaultgoal_default"
    folder = workdir / "annotations"
    merged = read_json(folder / name / "merged.json")
    assert not merged["missing_shards"]
    assert merged["counts"]["unknown"] == 0
    assert (workdir / "annotations" / f"{name}.html").read_text().endswith("</html>\n")
    found = {name: data for name, data in files(folder).items() if name.endswith(".npy")}
    assert f"{name}/prob.npy" in found
    assert [file.name for file in (workdir / "dataset/preference").iterdir()] == [f"{name}.npy"]
    found["labels"] = digest(workdir / f"dataset/preference/{name}.npy")
    return merged["counts"], found


def test_annotate_by_a_server(victims, tmp_path):
    with ChatServer() as chat:
        chat.delay_s = 0.002
        trial = Trial(
            victims, tmp_path, "annotate", "--config=configs/motif.py", "--config.annotate.backend=server",
            f"--config.annotate.server.url={chat.url}", "--config.annotate.server.in_flight=4",
            "--config.annotate.batch_size=20", "--config.annotate.both_orders=0.3", "--config.annotate.cache_dir=",
        )  # fmt: skip
        trial.kill(pairs, Same(labels))


def reward(workdir: Path) -> object:
    """All arrays of all checkpoints, and what is said beside them, but for the seconds."""
    folder = workdir / "reward"
    facts = read_json(folder / "statistics.json")
    rows = list(read_lines(folder / "metrics.jsonl"))
    assert rows == facts["history"]
    for row in rows:
        row.pop("seconds")
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    with reading(folder / "checkpoints") as checkpoints:
        states = {step: checkpoints.readable(str(step))[1] for step in checkpoints.steps()}
        sums = jax.tree.map(lambda leaf: hashlib.sha256(leaf.tobytes()).hexdigest(), states)
        arrays = {step: jax.tree.leaves(state) for step, state in sums.items()}
    assert names == sorted(map(str, arrays))
    return facts["statistics"], rows, arrays


@pytest.mark.slow
def test_train_reward(victims, tmp_path):
    pairs(tmp_path / "made")
    annotate.run(annotate.STAGE.view(get_config("quickstart.py").to_dict()), tmp_path / "made")
    trial = Trial(
        victims, tmp_path, "train_reward", "--config=configs/quickstart.py", "--config.reward.batch_size=32",
        "--config.reward.num_epochs=3", "--config.reward.message=lt_cnn_small",
    )  # fmt: skip
    copy = functools.partial(shutil.copytree, tmp_path / "made", dirs_exist_ok=True)
    trial.kill(copy, Same(reward))


TRAINING = {
    "network": "small", "intrinsic_coefficient": 0.0, "num_workers": 1, "games_per_worker": 8, "rollout_length": 8,
    "batch_size": 64, "warmup_steps": 0, "tensorboard": False, "train_for_env_steps": 1920, "save_every_steps": 384,
    "log_every_s": 0.02,
}  # fmt: skip


def trained(workdir: Path) -> None:
    folder, total = workdir / "policy", TRAINING["train_for_env_steps"]
    config = get_config(argument="toy")
    config.policy.update(TRAINING)
    assert train_policy.is_complete(viewed(config), workdir)
    rows = list(read_lines(folder / "metrics.jsonl"))
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] == total
    updates = [row["updates"] for row in rows]
    assert updates == [step // TRAINING["batch_size"] for step in steps]
    with reading(folder / "checkpoints") as checkpoints:
        kept = checkpoints.steps()
        for step in kept:
            _, arrays, facts = checkpoints.readable(str(step))
            learner = arrays["learner"]
            assert int(learner["version"]) * TRAINING["batch_size"] == step == facts["progress"]["env_steps"]
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner["params"]))
    assert kept[-1] == total
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == sorted(map(str, kept))


@pytest.mark.slow
def test_train_policy(victims, tmp_path):
    options = [f"--config.policy.{name}={value}" for name, value in TRAINING.items()]
    trial = Trial(victims, tmp_path, "train_policy", "--config=configs/motif.py:toy", *options)
    trial.kill(lambda workdir: None, trained)


EVALUATION = (
    "--config=configs/motif.py:toy", "--config.evaluate.episodes=60", "--config.evaluate.num_workers=1",
    "--config.evaluate.games_per_worker=4",
)  # fmt: skip
OFTEN = {"stages__evaluate__play__KEEP_EVERY_S": 0.02}


def evaluated(workdir: Path) -> object:
    folder = workdir / "evaluate/random"
    rows = list(read_lines(folder / "episodes.jsonl"))
    assert [row["episode"] for row in rows] == list(range(60))
    summary = read_json(folder / "summary.json")
    del summary["seconds"], summary["steps_per_s"]
    kept = {f"episode-{number:05}.npz" for number in summary["replays"].values()}
    assert {file.name for file in (folder / "replays").iterdir()} == kept
    assert summary["replays"].keys() == {"best", "worst", "liked"}
    for file in kept:
        load_replay(folder / "replays" / file, "--workdir")
    made_of = {file: data for file, data in files(folder).items() if file not in ("summary.json", "config.json")}
    return summary, made_of


def recorded(workdir: Path) -> None:
    """Replays show the episodes of the same number, of which those that were recorded before a kill are some."""
    folder = workdir / "evaluate/random"
    rows, kept = list(read_lines(folder / "episodes.jsonl")), read_json(folder / "summary.json")["replays"].values()
    assert [row["episode"] for row in rows] == list(range(60))
    assert all(row["did"] is not None for row in rows)
    assert {file.name for file in (folder / "recordings").iterdir()} == {f"episode-{number}.npz" for number in kept}
    assert {file.name for file in (folder / "replays").iterdir()} == {f"episode-{number:05}.npz" for number in kept}
    for number in kept:
        replay = load_replay(folder / f"replays/episode-{number:05}.npz", "--workdir")
        assert replay.metadata["figures"] == rows[number]
        assert len(replay.chars) == rows[number]["steps"] + 1


@pytest.mark.slow
def test_evaluate_games_that_are_recorded(victims, tmp_path):
    own = ("--config.env.task=faulty_games:Restless", "--config.evaluate.policy=random")
    Trial(victims, tmp_path, "evaluate", *EVALUATION, *own, **OFTEN).kill(lambda workdir: None, recorded)


def test_evaluate(victims, tmp_path):
    trial = Trial(victims, tmp_path, "evaluate", *EVALUATION, "--config.evaluate.policy=random", **OFTEN)
    trial.kill(lambda workdir: None, Same(evaluated))
