"""ONI's jobs on SLURM: a real server, a stand-in for the trainer, and the script between them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chat_server import ChatServer
from conftest import wait_for
from fake_slurm import FakeSlurm
from host_processes import finished

SRUN = """
    group=${{1#--het-group=}}; shift
    while [[ $1 == --* ]]; do echo "$1" >> {folder}/options$group; shift; done
    echo $$ > {folder}/group$group.new && mv {folder}/group$group.new {folder}/group$group
    exec "$@"
"""
SCANCEL = """
    echo "$*" >> {folder}/signalled
    kill -TERM $(cat {folder}/group1)
"""
PYTHON = """
    if [ "$1 $2" = "-m motif_jax.annotation.client" ]; then
        {python} "$@"; status=$?; touch {folder}/looked; exit $status
    fi
    if [ "$1 $2" != "-m motif_jax.launch" ]; then exec {python} "$@"; fi
    trap 'kill $!; exit {told}' TERM
    echo "$CUDA_VISIBLE_DEVICES" > {folder}/gpus1; echo $$ > {folder}/group1
    echo "$@" > {folder}/trained.new && mv {folder}/trained.new {folder}/trained
    sleep 10000 & wait $!
"""


class Job(FakeSlurm):
    def __init__(self, folder, chat, told=0):
        """The server is there already; the trainer goes on until it is `told` to stop, and ends with that status."""
        scripts = {"srun": SRUN, "scancel": SCANCEL, "python": PYTHON}
        super().__init__(folder, **{
            name: text.format(folder=folder, python=sys.executable, told=told) for name, text in scripts.items()
        })  # fmt: skip
        self.chat = chat

    def submit(self, script: str = "oni.sbatch", gpus: str = "") -> subprocess.Popen:
        variables = {"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}
        variables |= {"SLURMD_NODENAME": "127.0.0.1", "PORT": str(urlsplit(self.chat.url).port), "MODEL": "llama"}
        folder = self._folder
        server = f'echo "$CUDA_VISIBLE_DEVICES" > {folder}/gpus0; echo $$ > {folder}/group0; exec sleep 10000'
        variables |= {"SERVER": server, "MOTIF_JAX_API_KEY": self.chat.key, "LOOK_EVERY_S": "0.1"}
        variables["FAKE_STATE"] = "RUNNING\nRUNNING"
        variables |= {"SLURM_CPUS_PER_TASK_HET_GROUP_0": "3", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "5"}
        arguments = ["--config=configs/quickstart.py:score", f"--workdir={self._folder}/workdir"]
        return self.start(f"launch/slurm/{script}", *arguments, **variables)

    def wait_for(self, name: str) -> str:
        wait_for((self._folder / name).exists)
        return (self._folder / name).read_text()

    def process(self, group: int) -> int:
        return int(self.wait_for(f"group{group}"))


def is_gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


@pytest.fixture
def chat():
    with ChatServer(key="sesame", models=("llama",)) as chat:
        yield chat


def test_training_begins_with_the_model_and_a_signal_saves_and_requeues(tmp_path, chat):
    chat.models = ()  # it loads its model
    slurm = Job(tmp_path / "fakes", chat)
    job = slurm.submit()
    slurm.wait_for("looked")
    assert not (tmp_path / "fakes/trained").exists()
    chat.models = ("llama",)
    arguments = slurm.wait_for("trained").split()
    assert arguments[:3] == ["-m", "motif_jax.launch", "--stage=train_policy"]
    assert arguments[-3:] == [
        "--config.annotate.backend=server", f"--config.annotate.server.url={chat.url}", "--config.annotate.model=llama",
    ]  # fmt: skip
    assert slurm.wait_for("options0").split() == ["--cpus-per-task=3"]
    assert slurm.wait_for("options1").split() == ["--cpus-per-task=5", "--kill-on-bad-exit=1"]
    server = slurm.process(0)
    assert not is_gone(server)
    os.kill(job.pid, signal.SIGTERM)
    output, _ = finished(job)
    assert "oni.sbatch: not finished, requeued" in output
    assert slurm.wait_for("signalled") == "--signal=TERM 4711+1\n"
    assert slurm.requeued == ["requeue 4711"]
    assert is_gone(server)
    assert is_gone(slurm.process(1))


@pytest.mark.parametrize(("chosen", "server", "trainer"), [({}, "4,5", "6"), ({"SERVER_GPUS": "5,6"}, "5,6", "4")])
def test_on_one_node_a_gpu_trains_and_the_others_serve(tmp_path, chat, monkeypatch, chosen, server, trainer):
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    slurm = Job(tmp_path / "fakes", chat)
    job = slurm.submit("oni_node.sbatch", "4,5,6")
    arguments = slurm.wait_for("trained").split()
    assert arguments[-2:] == [f"--config.annotate.server.url={chat.url}", "--config.annotate.model=llama"]
    assert (slurm.wait_for("gpus0"), slurm.wait_for("gpus1")) == (f"{server}\n", f"{trainer}\n")
    os.kill(job.pid, signal.SIGTERM)
    output, _ = finished(job)
    assert "oni_node.sbatch: not finished, requeued" in output
    assert slurm.requeued == ["requeue 4711"]
    assert is_gone(slurm.process(0))
    assert is_gone(slurm.process(1))


def test_one_gpu_is_too_few_for_server_and_trainer(tmp_path, chat):
    job = Job(tmp_path / "fakes", chat).submit("oni_node.sbatch", "0")
    _, errors = finished(job, 2)
    assert "server and trainer need a GPU each, and the job has 1" in errors


def test_training_goes_on_without_its_server(tmp_path, chat):
    slurm = Job(tmp_path / "fakes", chat, told=137)
    job = slurm.submit()
    slurm.wait_for("trained")
    server = slurm.process(0)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: is_gone(server))  # the script may not have noticed yet
    os.kill(slurm.process(1), signal.SIGTERM)
    output, _ = finished(job)
    assert "the server ended before the trainer" in output
    assert "a task was lost, requeued" in output  # what became of the trainer
