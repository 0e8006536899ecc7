"""The script for a machine with a GPU, with stand-ins for Python and for the driver's program."""

import os
import shlex
import subprocess

import pytest
from conftest import ROOT, write_programs

pytestmark = pytest.mark.quick
STEPS = "'limits','numerics','reward','policy','profile','train',"
PYTHON = """
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
    folder, log = tmp_path / "venv/bin", tmp_path / "log"
    text = PYTHON.format(backend=backend or "''", missing=shlex.quote(missing), log=shlex.quote(str(log)), pip=pip)
    write_programs(folder, {"python": text, "nvidia-smi": smi})
    unwanted = ("VENV", "PYTHON", "UNPINNED", "JAX_PLATFORMS")
    env = {name: value for name, value in os.environ.items() if name not in unwanted}
    env |= {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": f"{folder}:{env['PATH']}", "WORKDIR": "run"} | environment
    command = ["bash", str(ROOT / "launch/gpu.sh"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done, log.read_text().splitlines() if log.exists() else []


def test_it_uses_the_active_environment_as_it_is(tmp_path):
    done, calls = gpu(tmp_path, "--config.policy.batch_size=8192", smi="echo 'NVIDIA H200'; sleep 0.1; echo 'NVIDIA B'")
    command = f"-m motif_jax.launch --config=configs/gpu.py --workdir={tmp_path}/run --stage=benchmark "
    assert calls == [f"{command}--config.benchmark.parts=({STEPS}) --config.policy.batch_size=8192", "platforms "]
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
    ((), {"backend": "cpu"}, "sees no GPU, though there is one (NVIDIA H200)"),
    ((), {"missing": "nle>=1.3\n", "pip": 1}, "lacks nle>=1.3, and pip could not install that: install it first"),
])  # fmt: skip
def test_bad_input_gets_one_sentence(tmp_path, arguments, options, message):
    done, calls = gpu(tmp_path, *arguments, **options, status=2)
    assert message in done.stderr
    assert done.stderr.startswith("motif_jax: ")
    assert done.stderr.count("\n") == 1
    assert not any("motif_jax.launch" in call for call in calls)


LONG = """
case "$*" in *motif_jax.system.sizing) echo {device}; exit ;; esac
echo "$*" >> {log}
exit {status}
"""


@pytest.mark.parametrize(("device", "status", "arguments", "launched", "ends"), [
    ("gpu", 0, (), 3, 0),
    ("cpu", 0, ("--dry_run",), 3, 0),
    ("cpu", 0, (), 0, 2),
    ("gpu", 124, (), 1, 0),  # the time of a part is over
    ("gpu", 2, (), 1, 2),
])  # fmt: skip
def test_a_long_training_and_its_evaluations_run_in_parts(tmp_path, device, status, arguments, launched, ends):
    python, log = tmp_path / "python", tmp_path / "log"
    write_programs(tmp_path, {"python": LONG.format(device=device, status=status, log=shlex.quote(str(log)))})
    done = subprocess.run(
        ["bash", str(ROOT / "launch/long.sh"), "--config.seed=3", *arguments], cwd=tmp_path, capture_output=True,
        env=os.environ | {"PYTHON": str(python), "WORKDIR": "run"}, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ends, done.stderr
    calls = log.read_text().splitlines() if log.exists() else []
    assert len(calls) == launched
    for call, rules in zip(calls, ("train_policy,evaluate", "balrog_nethack", "challenge"), strict=False):
        assert f"--workdir={tmp_path}/run --config=configs/quickstart.py:score,gpu " in call
        assert rules in call
        assert "--config.seed=3" in call
    assert ("this part is over: the same command goes on" in done.stdout) == (status == 124)
