"""Files of every kind, damaged in every way: refused in one sentence, or mended, but never taken for something else.

A foreign pickle in the place of any file would leave a trace if it were ever executed.
"""

import hashlib
import json
import os
import pickle
import random
import shutil
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import get_config

from motif_jax import launch, load_reward
from motif_jax.checkpoint import reading
from motif_jax.stages.policy_setup import read_policy
from motif_jax.stages.reward_setup import load_data
from motif_jax.structs import UserError

ORBAX = "ignore::pytest.PytestUnraisableExceptionWarning"  # of its own event loop, when it cannot read an array
pytestmark = pytest.mark.filterwarnings(ORBAX)
ANNOTATION = "lexicon_msg_defaultgoal"
SMALL = {
    "env.max_episode_steps": 50, "collect.num_pairs": 120, "collect.num_workers": 0, "reward.num_epochs": 2,
    "reward.batch_size": 32, "reward.message": "lt_cnn_small", "reward.learning_rate": 1e-3,
    "policy.num_workers": 0, "policy.synchronous": True, "policy.games_per_worker": 8, "policy.groups": 2,
    "policy.rollout_length": 8, "policy.batch_size": 64, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.intrinsic_coefficient": 0.0, "policy.train_for_env_steps": 192, "policy.save_every_steps": 64,
}  # fmt: skip


def run(workdir: Path, stage: str, **values) -> None:
    """One stage in this process, with all that `launch` does around it."""
    config = get_config("quickstart.py", "toy")
    config.update_from_flattened_dict(SMALL | {name.replace("__", "."): value for name, value in values.items()})
    launch.run(config, workdir, [stage])


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Also what is compiled in no time: it is hundreds of functions, for each of the runs below."""
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A workdir in which nothing is wrong."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    for stage in ("collect", "annotate", "train_reward", "train_policy"):
        run(workdir, stage)
    return workdir


@pytest.fixture
def workdir(whole, tmp_path):
    """A copy of it, to be damaged."""
    shutil.copytree(whole, tmp_path / "run")  # times of files are copied, so that the index is not stale
    return tmp_path / "run"


# ---- the damages


class Evil:
    """Leaves a trace when it is loaded."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def truncate(file: Path, trace: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path, trace: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path, trace: Path) -> None:
    data, rng = bytearray(file.read_bytes()), random.Random(file.name)
    for _ in range(1 + len(data) // 1000):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def flip_one(file: Path, trace: Path, where: float = 0.75) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 1
    file.write_bytes(data)


def poison(file: Path, trace: Path) -> None:
    file.write_bytes(pickle.dumps(Evil(trace)))


def poison_array(file: Path, trace: Path) -> None:
    with open(file, "wb") as out:
        np.save(out, np.array([Evil(trace)], object), allow_pickle=True)


def archive(file: Path, trace: Path) -> None:
    with open(file, "wb") as out:
        np.savez(out, a=np.zeros(3))


def other_type(file: Path, trace: Path) -> None:
    array = np.load(file)
    np.save(file, array.astype(np.float64) if array.dtype.kind in "iuf" else np.zeros(array.shape))


def other_shape(file: Path, trace: Path) -> None:
    np.save(file, np.load(file)[:-1])


def directory(file: Path, trace: Path) -> None:
    file.unlink()
    (file / "something").mkdir(parents=True)


def list_of_nothing(file: Path, trace: Path) -> None:
    file.write_text("[]")


def not_text(file: Path, trace: Path) -> None:
    file.write_bytes(b"\xff\xfe" * 40)


def damages_of(name: str) -> list:
    common = [truncate, empty, flip, flip_one, poison, directory]
    if name.endswith(".npy"):
        return [*common, poison_array, archive, other_type, other_shape]
    return [*common, list_of_nothing, not_text]


def every(*names: str):
    """Each file with each damage."""
    return some(*((name, *damages_of(name)) for name in names))


def some(*rows):
    """Files with the damages named after them."""
    cases = [(name, damage) for name, *damages in rows for damage in damages]
    return pytest.mark.parametrize(
        ("name", "damage"), cases, ids=[f"{name}-{damage.__name__}" for name, damage in cases]
    )


def refused_or(workdir: Path, name: str, damage, tmp_path: Path, attempt, same=lambda: True) -> None:
    """Damages a file; then `attempt` must raise one sentence that names it, or come to the `same` as without."""
    damage(workdir / name, tmp_path / "trace")
    refusal = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except UserError as error:
            refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 700
    assert refusal or same(), f"{name} was damaged, and nobody said so"
    assert not (tmp_path / "trace").exists(), "a stranger's code was executed"


def digest(*files: Path) -> list[str]:
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


# ---- the dataset

CODES = f"dataset/preference/{ANNOTATION}.npy"
PROB = f"dataset/preference/{ANNOTATION}/prob.npy"


@every("dataset/data/message.npy", "dataset/dataset.json", "dataset/index/captions.npy", "dataset/index/counts.npy",
       "dataset/index/caption_id.npy", "dataset/index/source.json", "dataset/config.json")  # fmt: skip
def test_a_dataset_is_annotated_as_it_was_collected_or_not_at_all(whole, workdir, tmp_path, name, damage):
    shutil.rmtree(workdir / "dataset/preference")
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@every("dataset/info/score.npy", "dataset/data/rewards.npy")
def test_what_oracles_compare_is_what_was_collected(workdir, tmp_path, name, damage):
    backend = {"score": "score", "rewards": "return"}[Path(name).stem]
    before = len(list((workdir / "dataset/preference").glob("*.npy")))
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate", annotate__backend=backend),
               lambda: False)  # fmt: skip
    assert len(list((workdir / "dataset/preference").glob("*.npy"))) == before


@some(("dataset.partial/progress.json", *damages_of("")), *(
    (f"dataset.partial/{name}.npy", truncate, empty, poison, poison_array, archive, other_type, other_shape, directory)
    for name in ("data/message", "info/start")
))  # fmt: skip
def test_a_dataset_in_the_making_goes_on_to_the_same_end_or_not_at_all(whole, tmp_path, name, damage, monkeypatch):
    from motif_jax.preferences.writer import PairWriter

    workdir, real = tmp_path / "run", PairWriter.add

    def stopped_at_half(self, episode, character):
        real(self, episode, character)
        if self.moments > 100:
            self.commit()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PairWriter, "add", stopped_at_half)
        with pytest.raises(KeyboardInterrupt):
            run(workdir, "collect")
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "collect"),
               lambda: digest(workdir / "dataset/dataset.json") == digest(whole / "dataset/dataset.json"))  # fmt: skip


# ---- labels

SHARD = f"dataset/preference/{ANNOTATION}/shard-00000-of-00001"


@every(f"{SHARD}.json", f"{SHARD}.npy", f"{SHARD}.prob.npy")
def test_shards_are_gone_on_with_as_they_were_or_not_at_all(whole, workdir, tmp_path, name, damage):
    for file in (CODES, PROB, f"dataset/preference/{ANNOTATION}/merged.json"):
        (workdir / file).unlink()
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@every(CODES, PROB, f"dataset/preference/{ANNOTATION}/merged.json")
def test_merged_labels_are_merged_anew(whole, workdir, tmp_path, name, damage):
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@every(CODES, PROB, f"dataset/preference/{ANNOTATION}/merged.json")
def test_a_reward_is_learnt_from_the_labels_that_were_merged(workdir, tmp_path, name, damage):
    config = get_config("quickstart.py", "toy")
    config.reward.labels = "soft"
    good = load_data(config, workdir).target
    refused_or(workdir, name, damage, tmp_path, lambda: np.testing.assert_array_equal(
        load_data(config, workdir).target, good), lambda: name.endswith("merged.json"))  # fmt: skip


# ---- the reward


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def arrays_of(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("damage", damages_of(""))
def test_a_checkpoint_reads_as_it_was_written_or_not_at_all(whole, workdir, tmp_path, damage):
    folder = "reward/checkpoints"
    with reading(whole / folder) as checkpoints:
        good = {step: (arrays_of(checkpoints.raw(step)), checkpoints.facts(step)) for step in checkpoints.steps()}
    last = f"{folder}/{max(good)}"

    def attempt():
        with reading(workdir / folder) as checkpoints:
            step, state, facts = checkpoints.readable("last")
        assert (arrays_of(state), facts) == good[step]

    for file in files_of(whole / last):
        refused_or(workdir, str(file.relative_to(whole)), damage, tmp_path, attempt)
        shutil.rmtree(workdir / last)
        shutil.copytree(whole / last, workdir / last)


def test_a_file_in_the_place_of_checkpoints_is_refused(workdir):
    (workdir / "reward/statistics.json").unlink()
    shutil.rmtree(workdir / "reward/checkpoints")
    (workdir / "reward/checkpoints").write_text("")
    with pytest.raises(UserError, match="is a file, where checkpoints are due"):
        run(workdir, "train_reward")


@some(("reward/statistics.json", flip, poison, list_of_nothing, directory), ("reward/metrics.jsonl", directory),
      ("reward/reward.html", directory), ("reward/config.json", *damages_of("")),
      ("config.json", *damages_of("")))  # fmt: skip
def test_the_reward_ends_the_same_whatever_lies_beside_its_checkpoints(whole, workdir, tmp_path, name, damage):
    if name in ("reward/metrics.jsonl", "reward/reward.html"):  # not read, but written
        (workdir / "reward/statistics.json").unlink()
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "train_reward"))
    with reading(workdir / "reward/checkpoints") as found, reading(whole / "reward/checkpoints") as wanted:
        assert found.steps() == wanted.steps()
        assert all(arrays_of(found.raw(step)) == arrays_of(wanted.raw(step)) for step in wanted.steps())


def test_a_torn_reward_is_learnt_again_from_the_epoch_before(whole, workdir):
    (workdir / "reward/statistics.json").unlink()
    for file in files_of(workdir / "reward/checkpoints/2/state"):
        flip(file, file)
    with pytest.warns(UserWarning, match="checkpoint 2 in .* cannot be read"):
        run(workdir, "train_reward")
    assert load_reward(workdir).top(9) == load_reward(whole).top(9)
    assert (workdir / "reward/checkpoints/unreadable-2").is_dir()


# ---- the policy


@some(("policy/metrics.jsonl", flip, poison, list_of_nothing, directory), ("policy/summary.json", empty, directory),
      ("policy/config.json", truncate, list_of_nothing, directory))  # fmt: skip
def test_the_policy_goes_on_whatever_lies_beside_its_checkpoints(workdir, tmp_path, name, damage):
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "train_policy", policy__train_for_env_steps=256))
    if (workdir / "policy/checkpoints/256").exists():
        rows = [json.loads(line) for line in (workdir / "policy/metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["env_steps"] == 256


def test_a_policy_whose_arrays_have_changed_is_not_played(workdir):
    """Nobody else notices: not orbax, not the format that it writes."""
    largest = max(files_of(workdir / "policy/checkpoints/192/state"), key=lambda file: file.stat().st_size)
    good, told = largest.read_bytes(), []
    for eighth in range(1, 8):
        largest.write_bytes(good)
        flip_one(largest, largest, eighth / 8)
        with pytest.warns(UserWarning, match="checkpoint 192 in .* cannot be read") as caught:
            assert read_policy(workdir)[1]["progress"]["env_steps"] == 128
        told += [str(warning.message) for warning in caught]
    assert any("its arrays are not what was written" in text for text in told)


def test_one_kind_of_checkpoint_is_not_taken_for_another(workdir):
    with pytest.raises(UserError, match="are not of a reward"):
        load_reward(workdir / "policy")
    with pytest.raises(UserError, match="are not of a policy"):
        read_policy(workdir / "reward")
