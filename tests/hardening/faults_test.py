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
from train_values_test import TINY, config_for
from victims import Outcome, Victims

from motif_jax import experiment
from motif_jax.config.table import flatten
from motif_jax.devices.checkpoints import reading
from motif_jax.files import checkpoint_steps, read_json, read_lines
from motif_jax.preferences.store import PairDataset
from motif_jax.replays.replay import load_replay
from motif_jax.stages import annotate, train_policy


class Trial:
    def __init__(
        self, victims: Victims, folder: Path, stage: str, *arguments: str, jobs: int = 1, **constants: object
    ):  # fmt: skip
        """`jobs`: of an array, which work one after another."""
        self.victims, self.folder, self.arguments = victims, folder, [*arguments, f"--stage={stage}"]
        self.constants = {name.replace("__", "."): value for name, value in constants.items()}
        self.killed: list[Outcome] = []
        self.resumed: list[int] = []  # the checkpoints at which training in the present workdir went on
        self.terminate = stage in ("collect", "annotate", "train_reward")  # others end with 0, and say what they saved
        self.jobs = [[f"--config.annotate.shard={job}"] if jobs > 1 else [] for job in range(jobs)]

    def kill(self, prepare: Callable[[Path], object], check: Callable[[Path], object], count: int = 10) -> None:
        """Kills it so often, and lets it finish in between; `check` first gets the workdir of an undisturbed run.

        What is in the workdir after a kill depends on the changes of files before it alone, so each kill is at one of
        them: spread evenly over that run, in random order. Of several jobs, each is killed in turn.
        """
        workdir = self.begin(prepare, "straight")
        changes = [self.go_on(workdir, job).changes for job in self.jobs]
        check(workdir)
        rng, number, working = random.Random(0), 0, 0
        workdir = self.begin(prepare, str(number))
        while len(self.killed) < count:
            for part in rng.sample(range(count), count):
                at = 1 + int((part + rng.random()) / count * changes[working])
                how = signal.SIGTERM if self.terminate and part % 3 > 1 else signal.SIGKILL
                if self.go_on(workdir, self.jobs[working], at, how).status == 0:
                    working += 1
                if working == len(self.jobs):
                    check(workdir)
                    number, working = number + 1, 0
                    assert number < 4 * count, "it is hardly ever hit"
                    workdir = self.begin(prepare, str(number))
        for job in self.jobs[working:]:
            self.go_on(workdir, job)
        check(workdir)

    def begin(self, prepare: Callable[[Path], object], name: str) -> Path:
        workdir = self.folder / name / "run"
        workdir.mkdir(parents=True)
        prepare(workdir)
        self.resumed = []
        return workdir

    def go_on(
        self, workdir: Path, job: list[str], at_change: int = 0, number: int = signal.SIGKILL
    ) -> Outcome:  # fmt: skip
        self.resumed += checkpoint_steps(workdir / "policy/checkpoints")[-1:]
        outcome = self.victims.run(workdir, [*self.arguments, *job], at_change, number, self.constants)
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
        assert not [*workdir.glob("dataset.*")]
        dataset = PairDataset(workdir / "dataset")
        assert len(dataset) == 1000
        of_this_run = ("run.json", "index/source.json", "config.json")
        return {name: data for name, data in files(dataset.path).items() if name not in of_this_run}

    trial.kill(lambda workdir: None, Same(describe))


def test_collect_transcripts(victims, tmp_path):
    trial = Trial(
        victims, tmp_path, "collect", "--config=configs/motif.py", "--config.env.world=wordle",
        "--config.collect.collector=repeat", "--config.collect.transcripts=40",
    )  # fmt: skip

    def describe(workdir):
        assert not [*workdir.glob("transcripts.*")]
        return {name: data for name, data in files(workdir / "transcripts").items() if name != "config.json"}

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


@pytest.mark.parametrize(("jobs", "values"), [
    (1, {"both_orders": 0.3}), (4, {"num_shards": 4}),
    pytest.param(1, {"order": "disagreement", "rounds": 3, "both_orders": 0.0}, marks=pytest.mark.slow),
])  # fmt: skip
def test_annotate_by_a_server(victims, tmp_path, jobs, values):
    with ChatServer() as chat:
        chat.delay_s = 0.002
        trial = Trial(
            victims, tmp_path, "annotate", "--config=configs/motif.py", "--config.annotate.backend=server",
            f"--config.annotate.server.url={chat.url}", "--config.annotate.server.in_flight=4",
            "--config.annotate.batch_size=20", "--config.annotate.cache_dir=",
            *(f"--config.annotate.{name}={value}" for name, value in values.items()),
            jobs=jobs, stages__annotate__disagreement__MOST_STEPS=4,
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
    arrays = arrays_of(folder)
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
    "log_every_s": 0.001, "synchronous": True, "save_every_s": 3600.0,
}  # fmt: skip
OF_TIME = {"seconds", "steps_per_s", "updates_per_s", "elapsed_s"}


def trained(workdir: Path) -> list[str]:
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
    return arrays_of(folder)[total]


@pytest.mark.slow
def test_train_policy(victims, tmp_path):
    options = [f"--config.policy.{name}={value}" for name, value in TRAINING.items()]
    trial = Trial(victims, tmp_path, "train_policy", "--config=configs/motif.py:toy", *options)

    def check(workdir):
        """Games that run at a checkpoint are not in it: a killed run is one that was stopped at its checkpoints."""
        other = tmp_path / f"{workdir.parent.name}-stopped" / "run"
        other.mkdir(parents=True)
        for step in [*sorted({*trial.resumed}), TRAINING["train_for_env_steps"]]:
            victims.run(other, [*trial.arguments, f"--config.policy.train_for_env_steps={step}"], 0, 0, {})
        assert trained(other) == trained(workdir)

    trial.kill(lambda workdir: None, check)


def arrays_of(folder: Path) -> dict[int, list[str]]:
    """The digests of all arrays of all checkpoints."""
    with reading(folder / "checkpoints") as checkpoints:
        states = {step: checkpoints.readable(str(step))[1] for step in checkpoints.steps()}
    return {
        step: [hashlib.sha256(leaf.tobytes()).hexdigest() for leaf in jax.tree.leaves(state)]
        for step, state in states.items()
    }


@pytest.mark.slow
def test_train_values(victims, tmp_path):
    config = config_for(tmp_path, **{"collect.transcripts": 40, "train_language.num_epochs": 1})
    experiment.run(config.to_dict(), tmp_path / "made", ["collect", "train_language"])
    values = flatten(config.to_dict())
    changed = {*TINY, "env.options"} & {name for name in values if name.partition(".")[0] != "evaluate"}
    options = {name: values[name] for name in sorted(changed)} | {
        "collect.transcripts": 40, "train_language.num_epochs": 1, "train_values.games": 0,
        "train_values.save_every_s": 0.01, "train_values.evaluate_every": 2, "train_values.log_every": 1,
    }  # fmt: skip
    trial = Trial(
        victims, tmp_path, "train_values", "--config=configs/motif.py",
        *(f"--config.{name}={value}" for name, value in options.items()),
    )  # fmt: skip

    def described(workdir):
        folder = workdir / "values"
        rows = [{k: v for k, v in row.items() if k not in OF_TIME} for row in read_lines(folder / "metrics.jsonl")]
        return arrays_of(folder), rows

    copy = functools.partial(shutil.copytree, tmp_path / "made", dirs_exist_ok=True)
    trial.kill(copy, Same(described))


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
