import contextlib
import io
import json
import subprocess
import sys

import pytest
from conftest import ROOT, get_config
from small_dataset import random_pairs, write_dataset

from motif_jax import __version__
from motif_jax.config.file import find_config, load, shipped
from motif_jax.experiment import dry_run, tables
from motif_jax.files import to_plain, write_config, write_json
from motif_jax.stages import NAMES, find_stage
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
STAGES = {name: find_stage(name) for name in NAMES}
BEGUN = {  # the directory of a stage that has begun, and what is in it then
    "collect": ("dataset.pieces", "000000000000.npz"),
    "annotate": ("annotations/lexicon_msg_defaultgoal", ""),
    "train_reward": ("reward", "checkpoints/1"),
    "train_policy": ("policy", "checkpoints/1"),
    "train_language": ("language", "checkpoints/1"),
    "train_values": ("values", "checkpoints/1"),
    "evaluate": ("evaluate/random", "episodes.jsonl"),
    "write_reward": ("write_reward", "round-0"),
}
RELEASE = "motif_jax/quickstart"
SIZES = "for this machine", "measured in games"
QUICKSTART = "--config=configs/quickstart.py:toy"


def said(config, workdir, stages=None) -> dict[str, str]:
    """What a dry run prints about each stage; not the sizes and lengths that a config has chosen."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        dry_run(config.to_dict(), workdir, stages)
    lines = [line for line in output.getvalue().splitlines() if not line.startswith(SIZES)]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_dry_run_names_every_stage_and_writes_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load(find_config(name), None, tables())
    assert said(config, tmp_path / "w") == dict.fromkeys(config.stages, "would run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_tells_what_has_begun_and_refuses_what_belongs_to_others(name, tmp_path):
    config, stage = get_config("quickstart.py", "toy"), STAGES[name]
    begun = name in BEGUN
    assert begun or not stage.folders(stage.view(config.to_dict()), tmp_path)
    if begun:
        folder, result = BEGUN[name]
        (tmp_path / folder / result).mkdir(parents=True)
        write_config(tmp_path / folder, config.to_dict())
    before = sorted(tmp_path.rglob("*"))
    words = f"begun in {str(tmp_path)!r}, would go on" if begun else "would run"
    assert said(config, tmp_path, [name]) == {name: words}
    if begun and stage.decisive(stage.view(config.to_dict())):
        config.seed += 1
        with pytest.raises(UserError, match=f"belongs to another exp.*\n.*\n +--config.seed +{config.seed - 1} +"):
            dry_run(config.to_dict(), tmp_path, [name])
    assert sorted(tmp_path.rglob("*")) == before


LEARNT = {"annotators": {"elsewhere": 1.0}, "labels": {}, "epoch": 8}
TRAINED = {"checkpoint": 8, "recent_episodes": {"count": 0}, "env_steps": 8, "seconds": 1.0}
ENDED = [  # a stage, the values that say how far it goes, and what is there after 8 epochs, or steps
    ("train_reward", "reward.num_epochs", {"reward/statistics.json": LEARNT, "reward/checkpoints/8": {}}),
    ("train_policy", "policy.train_for_env_steps", {"policy/summary.json": TRAINED, "policy/checkpoints/8": {}}),
    ("train_language", "train_language.num_epochs",
     {"language/summary.json": {"epoch": 8}, "language/model/config.json": {}}),
    ("train_values", "train_values.num_epochs", {"values/summary.json": {"epoch": 8}}),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "reaches", "files"), ENDED)
def test_a_training_is_complete_if_its_last_file_is_there_and_covers_what_is_asked(stage, reaches, files, tmp_path):
    for name, content in files.items():
        if name.endswith(".json"):
            write_json(tmp_path / name, content)
        else:
            (tmp_path / name).mkdir(parents=True)
    write_dataset(tmp_path / "dataset", random_pairs(2))
    config = get_config(*(("ilql.py", "wordle") if stage in ("train_language", "train_values") else ("quickstart.py",)))
    config.reward.annotators = "elsewhere"
    for asked, word in ((8, "complete"), (7, "complete"), (9, "begun")):
        config.update_from_flattened_dict({reaches: asked})
        assert said(config, tmp_path, [stage])[stage].startswith(f"{word} in "), asked
    config.update_from_flattened_dict({reaches: 8})
    (tmp_path / next(iter(files))).unlink()  # moved away, or killed before it was written
    assert not said(config, tmp_path, [stage])[stage].startswith("complete")


@pytest.mark.parametrize("source", ["dataset", "policies"])
def test_a_dataset_that_is_there_needs_nothing_from_outside(source, tmp_path):
    """As in a workdir of 0.2.0, whose dataset was made, and whose sections of the report are not read."""
    write_dataset(tmp_path / "dataset", random_pairs(2))
    write_json(tmp_path / "dataset/dataset.json", {})
    config = get_config("quickstart.py")
    config.update_from_flattened_dict({f"collect.{source}": str(tmp_path / "gone"), "annotate.goal": "gold"})
    assert said(config, tmp_path, ["collect", "annotate"])["annotate"] == "would run"


@pytest.mark.parametrize("file", ["quickstart.py", "motif.py"])
def test_a_workdir_keeps_the_batch_that_was_chosen_for_another_machine(launch_here, tmp_path, file):
    config = get_config(file, "toy,gpu")
    config.policy.batch_size = 4096
    write_config(tmp_path, config.to_dict())
    command = (f"--config=configs/{file}:toy,gpu", "--dry_run", "--stage=evaluate", f"--workdir={tmp_path}")
    told = launch_here(*command).stdout
    assert "batches of 4,096 steps" in told
    assert " cores, no GPU): network " in told  # why
    config.sized = False
    write_config(tmp_path, config.to_dict())
    assert "batches of 4,096 steps" not in launch_here(*command).stdout


def test_a_dry_run_reads_policies_rewards_and_language_models_without_jax(tmp_path):
    from own_models import write_own

    model = write_own("llama", tmp_path / "model")
    code = (
        "import sys; from motif_jax import launch; launch.define_flags(); status = launch.main(sys.argv); "
        "print([name for name in ('jax', 'flax', 'orbax') if name in sys.modules]); sys.exit(status)"
    )
    given = {
        "annotate.backend": "model", "annotate.model": model, "annotate.mode": "score", "annotate.prompt": "examples",
        "annotate.cache_dir": "", "language.model": model, "policy.init_from": RELEASE, "policy.reward_dir": RELEASE,
        "evaluate.baselines": f"random,{RELEASE}",
    }  # fmt: skip
    command = [f"--config.{name}={value}" for name, value in given.items()]
    stages = ("annotate", "train_policy", "evaluate", "train_language")
    command += [QUICKSTART, f"--workdir={tmp_path}/w", "--dry_run", f"--stage={','.join(stages)}"]
    command += ["--config.train_language.max_length=64", "--config.transcripts.template=words"]
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-5:] == [*(f"{stage}: would run" for stage in stages), "[]"]


def test_the_flags_that_only_tell(launch, launch_here, tmp_path):
    assert launch("--version").stdout == f"motif_jax {__version__}\n"

    values = ("--config.seed=7", "--config.policy.learning_rate=0.5", "--config.seeds=2")
    told = launch_here(QUICKSTART, *values, "--print_config")
    expected = get_config("quickstart.py", "toy")
    expected.seed, expected.policy.learning_rate, expected.seeds = 7, 0.5, "2"
    assert json.loads(told.stdout) == json.loads(json.dumps(to_plain(expected.to_dict())))

    sweep = ("--dry_run", "--sweep=policy.discount=0.9,0.99", "--config.seeds=2", "--stage=collect")
    told = launch_here(QUICKSTART, *sweep, f"--workdir={tmp_path}/w")
    folders = [f"policy.discount={value}/seed-{seed}" for value in (0.9, 0.99) for seed in (0, 1)]
    assert told.stdout.splitlines() == [line for folder in folders for line in (f"{folder}:", "collect: would run")]
    assert not (tmp_path / "w").exists()

    refused = launch_here(QUICKSTART, "--dry_run", f"--workdir={tmp_path}/w", "--config.collect.num_pairs=0", status=2)
    assert "must be a whole number from 1 to 1,000,000,000,000, not 0 (--config.collect.num_pairs)" in refused.stderr
    assert not (tmp_path / "w").exists()
