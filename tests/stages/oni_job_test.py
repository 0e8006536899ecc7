"""ONI's heterogeneous job on SLURM: a real server, a stand-in for the trainer, and the script between them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from conftest import LONG_S, ROOT, free_port, wait_for
from fake_slurm import FakeSlurm
from host_processes import ended

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
    if [ "$1 $2" = "-m motif_jax.annotation.client" ]; then echo "$*" >> {folder}/looked; fi
    if [ "$1 $2" = "-m motif_jax.launch" ]; then exec {python} {folder}/trainer.py "$@"; fi
    exec {python} "$@"
"""
SERVER = """
    import os, sys, time
    sys.path[:0] = {path!r}
    from chat_server import ChatServer
    chat = ChatServer(key=os.environ["VLLM_API_KEY"], models=())
    chat._port = int(os.environ["PORT"])
    with chat:
        time.sleep({loads_s})
        chat.models = (os.environ["MODEL"],)
        time.sleep({serves_s})
    sys.exit(7)
"""
TRAINER = """
    import json, os, signal, sys, time
    from pathlib import Path
    from urllib.request import Request, urlopen

    folder, arguments = Path({folder!r}), sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit({told}))
    values = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    headers = {{"Authorization": "Bearer " + os.environ["MOTIF_JAX_API_KEY"]}}
    request = Request(values["--config.annotate.server.url"] + "/models", headers=headers)
    models = [model["id"] for model in json.load(urlopen(request))["data"]]
    (folder / "trained.new").write_text(json.dumps([arguments, models]))
    (folder / "trained.new").rename(folder / "trained")
    time.sleep({trains_s})
    sys.exit({status})
"""


class Job(FakeSlurm):
    """The script, with what it starts."""

    def __init__(self, folder, *, loads_s=0.0, serves_s=LONG_S, trains_s=LONG_S, status=0, told=0):
        """The server loads its model for `loads_s`, then serves; the trainer ends with `status`, or `told` to stop."""
        scripts = {"srun": SRUN, "scancel": SCANCEL, "python": PYTHON}
        super().__init__(
            folder, **{name: text.format(folder=folder, python=sys.executable) for name, text in scripts.items()}
        )
        values = {"folder": str(folder), "path": [str(ROOT), *sys.path], "loads_s": loads_s, "serves_s": serves_s}
        values |= {"trains_s": trains_s, "status": status, "told": told}
        for name, text in (("server", SERVER), ("trainer", TRAINER)):
            lines = text.format(**values).split("\n")
            (folder / f"{name}.py").write_text("\n".join(line.removeprefix("    ") for line in lines))
        self.port = free_port()

    def submit(self, **environment) -> subprocess.Popen:
        variables = {"VENV": str(self.environment), "SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "4711"}
        variables |= {"SLURMD_NODENAME": "127.0.0.1", "PORT": str(self.port), "MODEL": "llama", "LOOK_EVERY_S": "0.1"}
        variables |= {"SERVER": f"exec {sys.executable} {self._folder}/server.py", "FAKE_STATE": "RUNNING\nRUNNING"}
        variables |= {"SLURM_CPUS_PER_TASK_HET_GROUP_0": "3", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "5"}
        arguments = ["--config=configs/quickstart.py:score", f"--workdir={self._folder}/workdir"]
        return subprocess.Popen(
            ["bash", str(ROOT / "launch/slurm/oni.sbatch"), *arguments],
            cwd=self._folder, env=os.environ | variables | environment, text=True, process_group=0,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for(self, name: str) -> str:
        """The text of a file that a process writes."""
        wait_for((self._folder / name).exists)
        return (self._folder / name).read_text()

    def process(self, group: int) -> int:
        return int(self.wait_for(f"group{group}"))


def is_gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


def test_training_begins_with_the_model_and_a_signal_saves_and_requeues(tmp_path):
    slurm = Job(tmp_path / "fakes", loads_s=1.0)
    job = slurm.submit()
    arguments, models = json.loads(slurm.wait_for("trained"))
    assert models == ["llama"]  # not before
    assert arguments[:3] == ["-m", "motif_jax.launch", "--stage=train_policy"]
    assert arguments[-3:] == [
        "--config.annotate.backend=server",
        f"--config.annotate.server.url=http://127.0.0.1:{slurm.port}/v1",
        "--config.annotate.model=llama",
    ]
    assert slurm.wait_for("options0").split() == ["--cpus-per-task=3"]
    assert slurm.wait_for("options1").split() == ["--cpus-per-task=5", "--kill-on-bad-exit=1"]
    server = slurm.process(0)
    assert not is_gone(server)
    os.kill(job.pid, signal.SIGTERM)
    ((status, output, errors),) = ended([job])
    assert status == 0, errors
    assert "oni.sbatch: not finished, requeued" in output
    assert slurm.wait_for("signalled") == "--signal=TERM 4711+1\n"
    assert slurm.requeued == ["requeue 4711"]
    assert is_gone(server)
    assert is_gone(slurm.process(1))


def test_training_goes_on_without_its_server(tmp_path):
    slurm = Job(tmp_path / "fakes", told=137)
    job = slurm.submit()
    slurm.wait_for("trained")
    server = slurm.process(0)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: is_gone(server))  # the script may not have noticed yet
    os.kill(slurm.process(1), signal.SIGTERM)
    ((status, output, errors),) = ended([job])
    assert status == 0, errors
    assert "the server ended before the trainer" in output
    assert "a task was lost, requeued" in output  # what became of the trainer
