"""What the scripts install, with stand-ins for pip and for the program of the GPU's driver."""

import os
import shutil
import subprocess

import pytest
from conftest import ROOT, write_programs

pytestmark = pytest.mark.quick
GPUS = {  # what nvidia-smi does when it is asked for drivers and compute capabilities: the extra that is wanted
    "echo 580.159.04, 9.0; echo 580.159.04, 9.0": "cuda13",
    "echo 575.57.08, 9.0": "cuda",  # an older driver
    "echo 580.65.06, 9.0; echo 580.65.06, 7.0": "cuda",  # one of the GPUs is a V100
    "case $1 in *compute_cap*) echo unknown field; exit 2;; esac; echo Tesla": "cuda",  # drivers of 2021
    "echo 'has failed because it could not communicate with the driver' >&2; exit 9": None,
}
PYTHON = """
cd {folder}
case "$*" in
  *pip*) touch cuda; echo "$*" >> log ;;
  -c*) if [ -e cuda ] && [ "${{JAX_PLATFORMS:-}}" != cpu ]; then echo gpu; else echo cpu; fi ;;
  *motif_jax.launch*) echo "$*" >> log ;;
esac
"""


def environment(tmp_path, smi: str, venv: str = "venv") -> dict[str, str]:
    """Variables in which `nvidia-smi` does as `smi` says; and there is a virtual environment, which records calls."""
    programs = tmp_path / "programs"
    python = tmp_path / venv / "bin/python"
    write_programs(programs, {"nvidia-smi": smi, "python3": "exit 1"})
    write_programs(python.parent, {"python": PYTHON.format(folder=tmp_path)})
    (python.parent / "activate").write_text(f'VIRTUAL_ENV={python.parent.parent} PATH="{python.parent}:$PATH"\n')
    unwanted = ("VENV", "VIRTUAL_ENV", "PYTHON", "UNPINNED", "JAX_PLATFORMS", "WORKDIR")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return kept | {"PATH": f"{programs}:{kept['PATH']}", "VENV": str(tmp_path / venv)}


def calls(tmp_path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines()


@pytest.mark.parametrize("smi", GPUS)
def test_what_a_gpu_needs_is_installed_where_there_is_one(tmp_path, smi):
    command = ["bash", "-c", f"source {ROOT}/launch/environment.sh && install dev"]
    subprocess.run(command, env=environment(tmp_path, smi), check=True)
    extras = f"dev,{GPUS[smi]}" if GPUS[smi] else "dev"
    assert [call.split()[-2:] for call in calls(tmp_path)] == [["-e", f".[{extras}]"]]
    subprocess.run(command, env=environment(tmp_path, smi), check=True)
    assert len(calls(tmp_path)) == 1  # that is done
    subprocess.run(command, env=environment(tmp_path, "echo 545.0, 8.0"), check=True)  # another machine
    assert (len(calls(tmp_path)) == 2) == (GPUS[smi] != "cuda")


def test_an_environment_of_ours_that_was_made_for_the_cpu_is_not_refused(tmp_path):
    """The quickstart made it before there was a GPU, or an older version of this script did."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    variables = environment(tmp_path, "echo 580.159.04, 9.0", ".venv") | {"VENV": ".venv"}
    done = subprocess.run(["bash", tmp_path / "launch/gpu.sh"], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed, ran = calls(tmp_path)
    assert installed.endswith("-e .[dev,cuda13]")
    assert "--config=configs/gpu.py --workdir" in ran
