"""Several hosts train one policy: real processes that meet on loopback, by hand and as SLURM would start them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import linear_policy
import numpy as np
import pytest
from conftest import LONG_S, get_config, last_checkpoint, run_stage, viewed, worker_processes
from fake_slurm import FakeSlurm
from host_processes import ONE_HOST, TINY, address, ended, finished, flags, rows_of, start, wait_for_rows
from listening import listening
from one_host import LARGE
from train_language_test import TINY as LANGUAGE
from train_language_test import talks
from train_policy_test import settings

from motif_jax.devices.hosts import Ballot, Hosts
from motif_jax.files import read_json, read_lines
from motif_jax.stages import is_first_host, train_policy
from motif_jax.stages.train_policy import check_batch, loop
from motif_jax.structs import UserError


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory):
    folder, where = tmp_path_factory.mktemp("hosts"), address()
    for status, _, errors in ended([start("update", where, me, folder / f"{me}.npz") for me in range(2)]):
        assert status == 0, errors
    return [dict(np.load(folder / f"{me}.npz")) for me in range(2)]


def test_two_hosts_learn_what_one_would_with_the_whole_batch(two_hosts):
    state, metrics = linear_policy.train(updates=3)
    for name, array in state.params.items():
        np.testing.assert_array_equal(two_hosts[0][name], two_hosts[1][name])
        np.testing.assert_allclose(two_hosts[0][name], array, atol=1e-6)
        assert not np.allclose(array, linear_policy.make_params()[name], atol=1e-3)
    np.testing.assert_allclose(two_hosts[0]["loss"], metrics["loss"], rtol=1e-5)


def test_what_the_first_host_gives_arrives_to_the_last_bit(two_hosts):
    for found in two_hosts:
        np.testing.assert_array_equal(found["large"], LARGE)
        assert found["none"].shape == (2, 0)
        assert found["yes"]


def test_a_host_that_fails_is_not_waited_for(two_hosts):
    assert two_hosts[0]["told"] == "host 1 of 2 has failed; its own output says why (--config.distributed)"
    assert two_hosts[1]["told"] == "the disk of host 1"
    for found in two_hosts:  # both end
        assert str(found["differs"]).startswith("host 1 has a state that differs from that of host 0: ")
    for found in two_hosts:
        assert found["said"].tolist() == [0, 11, 40, 60]  # no vote but to go on, the later episode, and two sums


@pytest.fixture
def second_host(monkeypatch):
    """Makes a training that of the second host, alone; returns its votes, and when it was ready to update."""
    events = []

    class Second(Hosts):
        def __init__(self):
            super().__init__()
            self.me = 1

        def agree(self, own=Ballot()):
            events.append(own.vote.name)
            return own

    monkeypatch.setattr(loop, "Hosts", Second)
    monkeypatch.setattr(loop, "before_first_update", lambda *_: events.append("ready"))
    return events


@pytest.mark.parametrize(("steps", "seconds", "ends"), [
    (64, 0.0, ["ready", "GO_ON", "END"]), (128, 1e-9, ["GO_ON", "GO_ON", "END"]),  # the first host's seconds count
])  # fmt: skip
def test_hosts_agree_after_each_is_ready_for_its_first_update(second_host, tmp_path, steps, seconds, ends):
    run_stage(train_policy, settings(train_for_env_steps=steps, train_for_seconds=seconds), tmp_path)
    assert second_host[-3:] == ends


@pytest.mark.slow
def test_hosts_train_together_and_a_signal_to_one_stops_all(tmp_path):
    """First with an address by hand, to the end; then further, as a job of SLURM's with one task told to stop."""
    distributed = [f"--config.distributed.coordinator={address()}", "--config.distributed.num_processes=2"]
    values = flags(tmp_path, train_for_env_steps=1280)
    flag = "--config.distributed.process_id"
    hosts = [start("launch", "--stage=train_policy", *values, *distributed, f"{flag}={me}") for me in range(2)]
    wait_for_rows(tmp_path, 1, hosts)
    with contextlib.suppress(OSError):  # one has ended since
        assert listening(hosts[0].pid) | listening(hosts[1].pid) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    ends = ended(hosts)
    assert [status for status, _, _ in ends] == [0, 0], ends
    assert "train_policy: 1,280 steps, 20 updates" in ends[0][1]
    assert "train_policy: " not in ends[1][1]  # the first host writes
    before = check_one_run(tmp_path)
    assert before["env_steps"] == 1280
    assert json.loads((tmp_path / "config.json").read_text())["distributed"]["process_id"] == 0

    slurm = TwoTasks(tmp_path / "fakes")
    job = slurm.submit(flags(tmp_path))
    wait_for_rows(tmp_path, len(rows_of(tmp_path)) + 2, [job])
    tasks = slurm.tasks
    os.kill(tasks[1], signal.SIGTERM)
    output, errors = finished(job)
    assert "train_policy: going on after 1,280 steps" in output
    assert "stopped by a signal to another host after" in errors
    assert "stopped by SIGTERM after" in errors
    assert "not finished, requeued" in output
    assert slurm.requeued == ["requeue 4711"]
    assert not worker_processes(tasks[0]) | worker_processes(tasks[1])
    after = check_one_run(tmp_path)
    assert after["env_steps"] > before["env_steps"]
    assert after["next_episode"] >= before["next_episode"]

    # A lost task ends the job, which goes on from the last checkpoint.
    begun = len(rows_of(tmp_path))
    job = slurm.submit(flags(tmp_path, save_every_s=0.1))
    wait_for_rows(tmp_path, begun + 2, [job])
    os.kill(slurm.tasks[1], signal.SIGKILL)
    output, errors = finished(job)
    assert "a task was lost, requeued" in output
    assert slurm.requeued == ["requeue 4711"] * 2
    steps = after["env_steps"] + 2 * TINY["batch_size"]
    output, errors = finished(slurm.submit(flags(tmp_path, train_for_env_steps=steps)))
    assert "train_policy: going on after " in output
    assert check_one_run(tmp_path)["env_steps"] >= steps

    # This would have been enough.
    output, errors = finished(slurm.submit(flags(tmp_path, train_for_env_steps=1280)))
    assert output.count("train_policy: complete in") == 2
    assert "train_policy.sbatch: finished" in output
    assert slurm.requeued == ["requeue 4711"] * 2


def check_one_run(workdir) -> dict:
    rows, summary = rows_of(workdir), json.loads((workdir / "policy/summary.json").read_text())
    assert summary["env_steps"] == summary["updates"] * TINY["batch_size"]  # half from each host
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] == summary["env_steps"]
    step, arrays, metadata = last_checkpoint(workdir)
    assert step == summary["env_steps"]
    assert int(arrays["learner"]["version"]) == summary["updates"] == metadata["progress"]["updates"]
    assert int(arrays["sources"]["rnd"]["updates"]) == summary["updates"]
    assert summary["episodes"] >= rows[-1]["episode/all"] > rows[-1]["episode/count"]  # of both hosts, from the start
    return summary


class TwoTasks(FakeSlurm):
    SRUN = """
        for me in 0 1; do
          SLURM_PROCID=$me SLURM_LOCALID=$me python {one_host} launch "${{@:5}}" & echo $! > {folder}/task$me
        done
        [ "$1 $2 $3" = "--kill-on-bad-exit=1 python -m" ] || exit 99
        wait -n && wait -n
        status=$?
        [ $status = 0 ] || kill -KILL $(cat {folder}/task0 {folder}/task1)
        exit $status
    """

    def __init__(self, folder: Path):
        super().__init__(folder, srun=self.SRUN.format(one_host=ONE_HOST, folder=folder))

    def submit(self, arguments: list[str], **environment: str) -> subprocess.Popen:
        port = address().rpartition(":")[2]
        variables = {"SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
        variables |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "1"}
        variables |= {"JAX_COORDINATOR_PORT": port, "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}
        return self.start("launch/slurm/train_policy.sbatch", *arguments, **variables | environment)

    @property
    def tasks(self) -> list[int]:
        return [int((self._folder / f"task{me}").read_text()) for me in range(2)]


@pytest.mark.parametrize(("environment", "ends", "said"), [
    ({"FAKE_STATUS": "0", "FAKE_STATE": "COMPLETING"}, 0, "not finished; the job is COMPLETING"),
    ({"FAKE_STATUS": "3"}, 3, ""),
    ({"FAKE_STATUS": "137"}, 0, "a task was lost, requeued"),  # killed
    ({"FAKE_STATUS": "134", "SLURM_RESTART_COUNT": "5"}, 134, ""),  # aborted by JAX
])  # fmt: skip
def test_a_job_is_requeued_for_a_lost_task_but_not_for_ever(tmp_path, environment, ends, said):
    slurm = TwoTasks(tmp_path / "fakes")
    (tmp_path / "fakes/srun").write_text("#!/usr/bin/env bash\nexit $FAKE_STATUS\n")
    output, _ = finished(slurm.submit(flags(tmp_path), **environment), ends)
    assert said in output
    assert slurm.requeued == ["requeue 4711"] * ("requeued" in said)


def test_a_host_that_does_not_come_is_reported():
    """Nobody else comes to host 0, and host 1 finds nobody at its address."""
    for status, _, errors in ended([start("meet", address(), me, 2) for me in range(2)]):
        assert status == 1
        assert errors.count("motif_jax: the 2 hosts have not all met at '127.0.0.1:") == 1
        assert "in 2 seconds" in errors
        assert "Traceback" not in errors


@pytest.mark.parametrize(("where", "message"), [
    ("localhost:{taken}", r"process 0 cannot listen on port {taken}: Address already in use"),
    ("no-such-host.invalid:80", r"the host 'no-such-host.invalid' is not known here: "),
])  # fmt: skip
def test_a_port_in_use_and_an_unknown_host_are_refused_at_once(where, message):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        _, errors = finished(start("meet", where.format(taken=taken), 0, LONG_S), 1)
    assert message.format(taken=taken) in errors
    assert errors.count("\n") == 1


@pytest.mark.quick
def test_a_batch_that_hosts_cannot_share_is_refused():
    config = get_config(argument="toy")  # 4096 steps are 128 rollouts of 32 steps, and a group's 32 games a quarter
    assert check_batch(config, num_devices=8, hosts=2) == 2
    with pytest.raises(UserError, match=r"multiple of 8192 = 32 .* x 8 hosts x 32 games .*policy.batch_size"):
        check_batch(config, num_devices=8, hosts=8)
    config.policy.update(network="language", algorithm="ppo", games_per_worker=2, num_minibatches=1024)
    assert check_batch(config, num_devices=4, hosts=1) == 128
    with pytest.raises(UserError, match="multiple of 8192 = 8 devices x 1024 minibatches"):
        check_batch(config, num_devices=8, hosts=1)


@pytest.mark.quick
def test_only_the_first_task_of_slurm_writes_the_workdirs_config(monkeypatch):
    config = viewed(get_config(argument="toy"))
    assert is_first_host(config)
    task = {"NODELIST": "node[1-2]", "NUM_TASKS": "2", "NUM_NODES": "2"}
    names = {f"SLURM_STEP_{name}": value for name, value in task.items()} | {"SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert not is_first_host(config)


@pytest.mark.differs(
    "ilql", there="gradients are not summed over processes", here="they are sums over all devices and hosts"
)
@pytest.mark.slow
def test_two_hosts_learn_what_one_does(tmp_path):
    """Each computes half of the rows of every batch; the first writes; the second run goes on from its checkpoint."""
    talks(tmp_path / "talks.jsonl")
    values = LANGUAGE | {"transcripts.import_from": tmp_path / "talks.jsonl", "train_language.num_epochs": 2}
    values |= {"train_language.learning_rate_end": 1.0}  # so that more epochs are more of the same
    alone, together = tmp_path / "alone", tmp_path / "together"

    def flags(workdir, **changes):
        more = [f"--config.{name.replace('__', '.')}={value}" for name, value in (values | changes).items()]
        return ["launch", "--config=configs/motif.py", f"--workdir={workdir}", "--stage=train_language", *more]

    finished(start(*flags(alone)))
    for epochs in (1, 2):
        hosts = [
            start(*flags(together, train_language__num_epochs=epochs, distributed__num_processes=2,
                         distributed__coordinator=where, distributed__process_id=me))
            for where in [address()] for me in range(2)
        ]  # fmt: skip
        ends = ended(hosts)
        assert [status for status, _, _ in ends] == [0, 0], ends
        assert "train_language: " in ends[0][1]
        assert "train_language: " not in ends[1][1]  # the first host writes
    assert "going on after" in ends[0][1]

    rows = [[*read_lines(workdir / "language/metrics.jsonl")] for workdir in (alone, together)]
    assert [row["steps"] for row in rows[0]] == [row["steps"] for row in rows[1]]
    for one, other in zip(*rows, strict=True):
        for name in ("loss", "gradient_norm", "valid_loss"):
            if name in one:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-3)
    counts = [read_json(workdir / "language/summary.json")["steps"] for workdir in (alone, together)]
    assert counts[0] == counts[1]
