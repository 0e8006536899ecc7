"""A host dies or hangs: the others end with one sentence, a checkpoint and a status of their own. Real processes."""

import itertools
import json
import os
import re
import signal

import pytest
from host_processes import address, ended, flags, make_impatient, rows_of, start, wait_for_rows

from motif_jax.devices.checkpoints import reading
from motif_jax.devices.hosts import LOST
from motif_jax.stages.train_policy.start import FACTS, RESCUED
from motif_jax.system.files import read_arrays

SENTENCE = re.compile(
    r"motif_jax: host (\d) of 2 was lost, without a sign of life for 4 seconds; (.+); end the remaining processes of "
    r"the run, and give the same command again on all hosts to go on\n"
)


def train(workdir) -> list:
    distributed = [f"--config.distributed.coordinator={address()}", "--config.distributed.num_processes=2"]
    return [
        start("launch", "--stage=train_policy", *flags(workdir), *distributed, f"--config.distributed.process_id={me}")
        for me in range(2)
    ]


def what_the_other_says(hosts: list, victim: int) -> tuple[str, str]:
    """What became of what was learnt, and the output; the other host has ended as it must."""
    make_impatient(hosts[1 - victim])
    ((status, output, errors),) = ended([hosts[1 - victim]])
    hosts[victim].kill()
    progress = re.compile(r"train_policy: [\d,]+ of .* steps, .*\n")
    found = SENTENCE.fullmatch(progress.sub("", errors))  # nothing but one line
    assert found, errors
    assert status == LOST == 75
    assert int(found[1]) == victim
    return found[2], output


def steps_saved(workdir) -> int:
    """By host 0, or by the one that outlived it, until the next start makes a checkpoint of it."""
    rescued = workdir / "policy" / RESCUED
    if rescued.exists():
        arrays = read_arrays(rescued, ["version", "sources/rnd/updates", FACTS])
        version, learnt, facts = arrays["version"], arrays["sources/rnd/updates"], json.loads(arrays[FACTS].tobytes())
    else:
        with reading(workdir / "policy/checkpoints") as checkpoints:
            _, state, facts = checkpoints.latest()
        version, learnt = state["learner"]["version"], state["sources"]["rnd"]["updates"]
    steps = facts["progress"]["env_steps"]
    assert int(version) == int(learnt) == facts["progress"]["updates"] == steps // 64
    return steps


def test_a_host_that_dies_or_hangs_before_training_is_told_of():
    """While the other waits in XLA for its devices."""
    cases = [(victim, number) for victim in range(2) for number in (signal.SIGKILL, signal.SIGSTOP)]
    cases += [(0, signal.SIGINT)]
    runs = []
    for victim, number in cases:
        where = address()
        runs.append([start("lose", where, me, victim) for me in range(2)])
    try:
        for (victim, number), hosts in zip(cases, runs, strict=True):
            for host in hosts:  # on a busy machine, one of them may know of the meeting seconds before the other
                assert host.stdout.readline() == "met\n"
            hosts[victim].send_signal(number)
            if number == signal.SIGINT:  # whoever is interrupted does not wait for the others
                ((status, _, _),) = ended([hosts[victim]])
                assert status == 128 + signal.SIGINT
            assert what_the_other_says(hosts, victim)[0] == "nothing was learnt since it started"
    finally:
        for host in itertools.chain.from_iterable(runs):
            host.kill()


@pytest.mark.slow
def test_what_was_learnt_survives_any_host_and_the_same_command_goes_on(tmp_path):
    """No checkpoint is due before the end, so all that is found later was saved when a host was lost."""
    before = 0
    for victim, number in ((0, signal.SIGSTOP), (1, signal.SIGKILL)):
        hosts = train(tmp_path)
        wait_for_rows(tmp_path, len(rows_of(tmp_path)) + 2, hosts)
        os.kill(hosts[victim].pid, number)
        saved, output = what_the_other_says(hosts, victim)
        if victim == 1:
            assert f"train_policy: going on after {before:,} steps" in output
        assert (tmp_path / "policy" / RESCUED).exists() == (victim == 0)
        after = steps_saved(tmp_path)
        assert saved == f"all {after:,} steps are saved"
        assert after > before
        assert after >= rows_of(tmp_path)[-1]["env_steps"] - 128  # not the update in work; one more if its end was cut
        before = after
