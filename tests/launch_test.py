import json
import re
import shutil
import subprocess

import pytest

from motif_jax.config.file import PACKAGE
from motif_jax.launch import split_config

MOTIF = "--config=configs/motif.py"


@pytest.mark.parametrize(("arguments", "message"), [
    ((), "--config is required, for example --config="),
    ((MOTIF,), "--workdir is required, for example --workdir="),
    (("--config=mtif", "--workdir=W"), "text_game come with the program"),
    (("--config=configs/motif.py:scor", "--workdir=W"), "unknown task 'scor'"),
    ((MOTIF, "--workdir=W", "--stage=colect"), "unknown stage 'colect' (--stage): did you mean 'collect'?"),
    ((MOTIF, "--workdir=W", "--config.collect.num_pair=3"), "did you mean --config.collect.num_pairs?"),
    ((MOTIF, "--workdir=W", "--config.collect.num_pairs=many"), "--config.collect.num_pairs=many"),
    ((MOTIF, "--workdir=W", "--wrokdir=V"), "wrokdir"),
    ((MOTIF, "--workdir=W", "collect"), "unexpected argument 'collect'"),
    ((MOTIF, "--workdir=W", "--config.collect.num_pairs=2000000000"), "(--config.collect.num_pairs, --workdir)"),
    ((MOTIF, "--workdir=/proc/nothing/here"), "'/proc/nothing"),
    (("--config=.", "--workdir=W"), "there is no config file '.' (--config)"),
    ((MOTIF, "--workdir=W", "--config.collect={}"), "the config has no value 'collect'"),
    ((MOTIF, "--workdir=W", "--config.collect.dataset=\udce9"), "must be text of up to 4,000 characters"),
    ((MOTIF, "--workdir=W", "--help=polcy"), "did you mean 'policy'?"),
    *(((MOTIF, "--workdir=W", f"--config.seeds={text}"), f"seeds from 1 to 1,000, or seeds, as in 3,7; not '{text}' (")
      for text in ("-1", "0", "2000", "1,,2", "x")),
    ((MOTIF, "--workdir=W", "--sweep=policy.discount"), "write NAME=VALUE"),
    ((MOTIF, "--workdir=W", "--sweep=policy.discount=1,,2"), "write NAME=VALUE"),
    ((MOTIF, "--workdir=W", "--sweep=env.task=x/y"), "without a slash"),
    ((MOTIF, "--workdir=W", "--sweep=policy.discount=0.9", "--sweep=policy.discount=1"), "is swept twice"),
    ((MOTIF, "--workdir=W", "--sweep=seed=1,2"), "--config.seeds=5"),
])  # fmt: skip
def test_bad_input_gets_one_sentence(launch_here, tmp_path, arguments, message):
    arguments = [argument.replace("--workdir=W", f"--workdir={tmp_path / 'run'}") for argument in arguments]
    done = launch_here(*arguments, status=2)
    assert message in done.stderr
    assert done.stderr.startswith("motif_jax: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("run/dataset*"))


@pytest.mark.quick
@pytest.mark.parametrize("form", [("--config={}",), ("-config={}",), ("--config", "{}")])
def test_a_name_stands_for_a_config_that_comes_with_the_program(tmp_path, monkeypatch, form):
    def line(value: str) -> list[str]:
        return ["motif-jax", *(part.format(value) for part in form), "--workdir=motif"]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # a directory is no config
    for value in ("motif", "quickstart:toy,reference"):
        name, colon, argument = value.partition(":")
        found = f"{PACKAGE}/configs/{name}.py", argument if colon else None
        assert split_config(line(value)) == (found, ["motif-jax", "--workdir=motif"])
    (tmp_path / "motif").write_text("a config of the user's own")
    for value in ("motif", "motif.py", "configs/motif.py:toy", "other:"):
        name, colon, argument = value.partition(":")
        assert split_config(line(value))[0] == (name, argument if colon else None)


def test_somebody_elses_dataset_directory_is_left_alone(launch_here, tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/precious.txt").write_text("keep me")
    done = launch_here(MOTIF, f"--workdir={tmp_path}", status=2)
    assert "is there already and was not made by this stage" in done.stderr
    assert (tmp_path / "dataset/precious.txt").read_text() == "keep me"


@pytest.mark.journey
@pytest.mark.slow
def test_all_stages_run_one_after_another_and_nothing_is_done_twice(launch, tmp_path):
    more = ("--config.collect.num_pairs=20", "--config.collect.collector=random", "--config.collect.num_workers=0")
    more += ("--config.policy.train_until=steps<=1000", "--config.policy.num_workers=1")  # after a hundred episodes
    more += ("--config.evaluate.episodes=10", "--config.evaluate.num_workers=0", "--config.reward.message=lt_cnn_small")
    told = launch("--config=configs/quickstart.py:toy,reference", f"--workdir={tmp_path}", *more, status=0).stderr
    lines = [line for line in told.splitlines() if line.startswith("train_policy: ")]
    assert " left" not in lines[0]
    left = re.findall(r"([\d,]+) s left", "\n".join(lines))
    assert all(int(seconds.replace(",", "")) <= 400 for seconds in left)  # the limit of the quickstart
    summary = json.loads((tmp_path / "policy/summary.json").read_text())
    assert summary["recent_episodes"]["count"] == 100
    (evaluated,) = tmp_path.glob("evaluate/policy-*")
    for file in ("config.json", "dataset/config.json", "reward/config.json", "policy/config.json",
                 evaluated / "config.json"):  # fmt: skip
        saved = json.loads((tmp_path / file).read_text())
        assert saved.get("collect", {"num_pairs": 20})["num_pairs"] == 20  # a stage records the sections that it reads
        assert saved["env"]["task"] == "toy"
        assert saved["env"]["reference_sober"] is True
    assert (tmp_path / "evaluate/random/summary.json").is_file()
    assert "</html>" in (tmp_path / "report/index.html").read_text()
    again = launch("--config=configs/quickstart.py:toy,reference", f"--workdir={tmp_path}", *more)
    stages = ("collect", "annotate", "train_reward", "train_policy", "evaluate", "report")
    assert again.stdout.splitlines() == [f"{stage}: complete in '{tmp_path}', skipped" for stage in stages]


REFUSES = "#include <errno.h>\nint flock(int file, int operation) { errno = NUMBER; return -1; }\n"
SMALL = ("--config=configs/quickstart.py", "--stage=collect,annotate", "--config.collect.num_pairs=10",
         "--config.collect.num_workers=1", "--config.collect.collector=random")  # fmt: skip


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, to refuse locks as such a file system does")
@pytest.mark.parametrize(("number", "flag"), [("ENOSYS", "--nolocks"), ("ENOLCK", "")])
def test_a_file_system_without_locks_is_told_and_a_flag_goes_on_without(launch, tmp_path, monkeypatch, number, flag):
    (tmp_path / "flock.c").write_text(REFUSES.replace("NUMBER", number))
    library = tmp_path / "flock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "flock.c"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    workdir = tmp_path / "run"
    refused = launch(*SMALL, f"--workdir={workdir}", status=2)
    assert refused.stderr.count("\n") == 1
    assert f"the file system of '{workdir}' has no locks" in refused.stderr
    assert "--nolocks" in refused.stderr
    if flag:
        launch(*SMALL, f"--workdir={workdir}", flag, status=0)
        assert list(workdir.glob("dataset/preference/*.npy"))
        assert not list(workdir.rglob("*.tmp"))
