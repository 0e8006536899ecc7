"""Nobody can reach a run from outside, and no secret leaves it: not in its files, not in what it prints."""

import os
import subprocess
import sys
import time
from pathlib import Path

from chat_server import ChatServer
from conftest import ROOT
from listening import listening
from small_dataset import MANY, random_pairs, write_dataset

SECRETS = {"MOTIF_JAX_API_KEY": "sesame-4711-motif", "HF_TOKEN": "hf_sesame4712", "WANDB_API_KEY": "f" * 36 + "4713"}
POLICY = {
    "network": "small", "intrinsic_coefficient": 0.0, "num_workers": 2, "games_per_worker": 8, "rollout_length": 8,
    "batch_size": 64, "warmup_steps": 0, "train_for_env_steps": 128, "log_every_s": 0.1,
}  # fmt: skip


def is_loopback(address: str) -> bool:
    """Addresses stand there as words of the machine's own order."""
    return address.endswith("7F") if len(address) == 8 else address == "0" * 24 + "01000000"


def watch(workdir: Path, *arguments: str) -> tuple[int, str, set[str]]:
    """Runs a stage with secrets in its environment: exit status, output, and where it listened meanwhile."""
    command = [sys.executable, "-m", "motif_jax.launch", f"--workdir={workdir}", *arguments]
    log = workdir.with_name(f"{workdir.name}.log")
    environment = os.environ | SECRETS | {"PYTHONPATH": str(ROOT / "tests/actors")}  # for games that fail
    with open(log, "w") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        found, looks = set(), 0
        while process.poll() is None:
            try:
                found |= listening(process.pid)
                looks += 1
            except OSError:  # it has just ended
                break
            time.sleep(0.1)
        status = process.wait()
    assert looks
    return status, log.read_text(), found


def assert_told_nobody(workdir: Path, output: str) -> None:
    files = [file for file in workdir.rglob("*") if file.is_file()]
    assert files
    for secret in SECRETS.values():
        assert secret not in output
        told = [str(file) for file in files if secret.encode() in file.read_bytes()]
        assert not told


def test_a_stage_listens_to_nobody_and_keeps_its_secrets(tmp_path):
    options = [f"--config.policy.{name}={value}" for name, value in POLICY.items()]
    status, output, found = watch(tmp_path / "run", "--stage=train_policy", "--config=configs/motif.py:toy", *options)
    assert status == 0, output
    assert not [address for address in found if not is_loopback(address)]
    assert_told_nobody(tmp_path / "run", output)


def test_the_key_goes_to_the_server_and_nowhere_else(tmp_path):
    workdir, key = tmp_path / "run", SECRETS["MOTIF_JAX_API_KEY"]
    write_dataset(workdir / "dataset", random_pairs(200, events=MANY))
    arguments = ["--config=configs/motif.py", "--stage=annotate", "--config.annotate.backend=server",
                 f"--config.annotate.cache_dir={workdir}/answers",
                 "--config.annotate.server.patience_s=1.0"]  # fmt: skip
    faults = {"": 0, "403": 2}  # lets everybody in; lets nobody in: exit status
    for number, (fault, expected) in enumerate(faults.items()):
        with ChatServer(lambda number, body, fault=fault: fault, key=key) as chat:
            chat.delay_s = 0.005
            more = [f"--config.annotate.server.url={chat.url}", f"--config.annotate.custom_name=mine-{number}"]
            if fault:
                more.append("--config.annotate.cache_dir=")
            status, output, found = watch(workdir, *arguments, *more)
            assert status == expected, output
            assert not [address for address in found if not is_loopback(address)]
            assert_told_nobody(workdir, output)
