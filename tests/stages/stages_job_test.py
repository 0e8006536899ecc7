import subprocess

import pytest
from conftest import ROOT, wait_for
from fake_slurm import FakeSlurm
from host_processes import finished

pytestmark = pytest.mark.quick
JOBS = sorted([*(ROOT / "launch/slurm").glob("*.sbatch"), *(ROOT / "motif_jax/contrib").rglob("*.sbatch")])
PYTHON = """
    echo "$*" >> {folder}/ran
    if [ "$1" = -c ]; then exit {lacks_cuda}; fi
    if [ {status} -ge 0 ]; then exit {status}; fi
    trap 'kill $!; exit {told}' TERM
    touch {folder}/runs
    sleep 600 & wait $!
"""


def start(folder, job, status=0, told=None, lacks_cuda=0, **variables) -> subprocess.Popen:
    """A job on its first node. Its program ends with `status`; or, when it is told to, with the status `told`."""
    text = PYTHON.format(folder=folder, status=status if told is None else -1, told=told, lacks_cuda=lacks_cuda)
    smi = "exit 9" if not lacks_cuda else "echo 'NVIDIA H200'"
    slurm = FakeSlurm(folder, python=text, **{"nvidia-smi": smi})
    known = {"MODEL": "llama", "JAX_PLATFORMS": ""}
    return slurm.start(job, "--stage=collect", "--workdir=w", **known | variables)


def lines_of(folder, name: str) -> list[str]:
    return (folder / name).read_text().splitlines() if (folder / name).exists() else []


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_every_job_names_what_a_cluster_wants(tmp_path, job):
    folder = tmp_path / "fakes"
    variables = {"BASH_FUNC_module%%": f'() {{ echo "$*" >> {folder}/loaded; echo $UNSET; exit 7; }}'}
    finished(start(folder, job, MODULES="cuda/12.4 gcc", **variables), 7)
    assert lines_of(folder, "loaded") == ["load cuda/12.4 gcc"]
    _, errors = finished(start(tmp_path / "no", job, VENV="nowhere"), 2)
    assert errors.startswith(f"{job.name}: there is no environment nowhere (VENV)")


@pytest.mark.parametrize("job", [job for job in JOBS if "annotate" not in job.name], ids=lambda job: job.name)
def test_no_job_trains_on_the_cpu_beside_a_gpu(tmp_path, job):
    folder = tmp_path / "fakes"
    _, errors = finished(start(folder, job, lacks_cuda=1), 2)
    assert errors.startswith(f"{job.name}: the environment (VENV) lacks JAX's libraries for CUDA: pip install ")
    assert errors.count("\n") == 1
    assert not any("motif_jax.launch" in call for call in lines_of(folder, "ran"))


@pytest.mark.parametrize("told", [143, 0])
def test_stages_that_are_told_to_stop_go_on_later(tmp_path, told):
    folder = tmp_path / "fakes"
    job = start(folder, "launch/slurm/stages.sbatch", told=told)
    wait_for(lambda: (folder / "runs").exists() or job.poll() is not None)
    job.terminate()
    output, _ = finished(job)
    assert "stages.sbatch: not finished, requeued" in output
    assert lines_of(folder, "requeued") == ["requeue 4711"]
    assert lines_of(folder, "ran") == ["-m motif_jax.launch --stage=collect --workdir=w"]
