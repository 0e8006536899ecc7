import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from functools import partial

import pytest
from conftest import ROOT, get_config, refusal
from small_dataset import random_pairs, write_dataset

from motif_jax.actors.pool import ActorPool
from motif_jax.experiment import flatten
from motif_jax.stages import NAMES, find_stage
from motif_jax.structs import UserError
from motif_jax.system.errors import LIMITS, REMEDIES, Limits, explained

TOY = (
    "--config=configs/quickstart.py:toy", "--config.collect.num_workers=0", "--config.collect.num_pairs=100",
    "--config.evaluate.num_workers=0", "--config.evaluate.policy=random", "--config.evaluate.baselines=",
    "--config.reward.message=lt_cnn_small", "--config.reward.num_epochs=1", "--config.policy.num_workers=0",
    "--config.policy.intrinsic_coefficient=0", "--config.policy.extrinsic_coefficient=1",
    "--config.policy.games_per_worker=8", "--config.policy.rollout_length=8", "--config.policy.batch_size=64",
    "--config.policy.train_for_env_steps=1000000000", "--config.policy.save_every_s=0.1",
    "--config.policy.warmup_steps=0", "--config.policy.log_every_s=1e6",
    "--config.visualize.policy=random", "--config.visualize.episode=3",
)  # fmt: skip
# What is left on the disk; 16 for others.
ROOM_KIB = {"train_policy": 200, "annotate": 24}


def run(stage, workdir, *arguments):
    command = [sys.executable, "-m", "motif_jax.launch", *TOY, f"--stage={stage}", f"--workdir={workdir}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def said(done):
    """The last sentence; nothing else is said but how far it got."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    *others, last = done.stderr.splitlines()
    assert all(re.search(r": [\d,]+( of [\d,]+)? \w+", line) for line in others), done.stderr
    assert last.startswith("motif_jax: ")
    return last.removeprefix("motif_jax: ")


def fail(error, *arguments):
    with explained(*arguments):
        raise error


@pytest.mark.quick
@pytest.mark.parametrize("stage", NAMES)
def test_every_refusal_is_one_sentence_of_every_stage(tmp_path, stage):
    limits, known = find_stage(stage).limits, flatten(get_config().to_dict())
    for text in filter(None, limits):
        first, *others = text.removeprefix("--config.").split(", ")
        assert {first, *(first.partition(".")[0] + other for other in others)} <= known.keys()
    for number in {*REMEDIES, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EBUSY, errno.ENOTEMPTY}:
        error = OSError(number, os.strerror(number), str(tmp_path / "some\nfile"))
        text = refusal(partial(fail, error, tmp_path, stage, limits))
        assert text.startswith(f"{stage} cannot go on: {os.strerror(number)} for {str(tmp_path)!r}"[:-1])
        kinds = REMEDIES.get(number, (0,))
        for kind, flags in enumerate(("--workdir", limits.disk, limits.memory)):
            assert (kind not in kinds) or flags in text


@pytest.mark.quick
@pytest.mark.parametrize(("error", "hint"), [
    (OSError(errno.ENOSPC, "full"), "full for "),
    (PermissionError(errno.EACCES, "no", "/elsewhere/film.gif"), "no for '/elsewhere/film.gif' (--config.x.disk)"),
    (MemoryError("Unable to allocate 8 GiB\nfor"), "not enough memory: Unable to allocate 8 GiB (--config.x.memory)"),
    (RuntimeError("can't start new thread"), "can't start new thread (--config.x.memory"),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"), "9 bytes (--config.x.device)"),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1610612736 bytes."), "left for another 1.5 GiB ("),
    (RuntimeError("INTERNAL: RESOURCE_EXHAUSTED: allocator (GPU_0_bfc) ran out of memory trying to allocate 8.00GiB"),
     "the device has no memory left for another 8.00 GiB (--config.x.device)"),
    (ValueError("RESOURCE_EXHAUSTED: Error writing ... [os_error_code='28']"), "No space left on device for"),
    (ExceptionGroup("tasks", [KeyError("first"), OSError(errno.EMFILE, "too many")]), "too many (--config.x.memory"),
])  # fmt: skip
def test_refusals_in_other_words(tmp_path, error, hint):
    limits = Limits("--config.x.disk", "--config.x.memory", "--config.x.device")
    refusal(lambda: fail(error, tmp_path, "x", limits), hint)


def while_handling(error, later):
    try:
        raise error
    except type(error):
        raise later


def refused_for_a_file():
    handled = UserError("no such player")
    handled.__cause__ = FileNotFoundError(errno.ENOENT, "no", "player")
    return handled


@pytest.mark.quick
@pytest.mark.parametrize("fail", [
    partial(while_handling, FileNotFoundError(errno.ENOENT, "no", "file"), KeyError("a bug")),
    partial(while_handling, KeyError("a"), RuntimeError("a bug\nwith out of memory in its text")),
    partial(while_handling, KeyError("a"), OSError(errno.EINVAL, "Invalid argument")),
    partial(while_handling, refused_for_a_file(), KeyError("a bug")),
])  # fmt: skip
def test_errors_in_the_program_keep_their_traceback(tmp_path, monkeypatch, fail):
    monkeypatch.chdir(tmp_path)  # where files that are missing would be the workdir's
    with pytest.raises(Exception) as caught, explained(tmp_path, "x", Limits("--config.x.disk", "--config.x.memory")):
        fail()
    assert caught.value is fail.args[1]


@pytest.mark.quick
def test_cleaning_up_does_not_hide_what_went_wrong(tmp_path):
    with pytest.raises(UserError, match="full for '/some/file'"), explained(tmp_path):
        while_handling(OSError(errno.ENOSPC, "full", "/some/file"), ValueError("write to closed file"))


@pytest.mark.quick
def test_limits_are_named_where_there_are_any(tmp_path, monkeypatch):
    for number, (_, name) in LIMITS.items():
        for limit, shown in ((1000, True), (resource.RLIM_INFINITY, False)):
            monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit, limit))
            limits = Limits("--config.x.disk", "--config.x.memory")
            said = refusal(lambda limits=limits: fail(OSError(number, "too much"), tmp_path, "x", limits))
            assert (name in said) == shown


@pytest.mark.parametrize("num_workers", [0, 1])
def test_refusals_in_workers_are_told_alike(tmp_path, num_workers):
    def play():
        settings = {"task": "faulty_games:Refused"}
        options = {"num_workers": num_workers, "games_per_worker": 1, "rollout_length": 4, "player": "random"}
        with explained(tmp_path, "collect"), ActorPool(settings, ("message",), **options) as pool:
            while True:
                pool.poll(0.2)

    refusal(lambda: play(), match="^collect cannot go on: No space left on device for '/some/file'$")


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"only root can have a disk of its own here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("stage", ["collect", "annotate", "train_policy", "visualize"])
def test_a_full_disk(disk, stage):
    workdir = disk / "run"
    workdir.mkdir()
    if stage == "annotate":
        write_dataset(workdir / "dataset", random_pairs(40))
    room = ROOM_KIB.get(stage, 16) * 1024
    with open(disk / "filler", "wb") as filler:
        filler.write(bytes(max(0, shutil.disk_usage(disk).free - room)))
    done = run(stage, workdir, f"--config.visualize.export={disk / 'film.gif'}")
    text = said(done)
    if stage == "collect":  # which knows beforehand how much it needs
        assert re.fullmatch(r"100 pairs need .* left \(--config.collect.num_pairs, --workdir\)", text)
        return
    assert text.startswith(f"{stage} cannot go on: No space left on device for {str(disk)!r}"[:-1])
    assert text.endswith(f"{find_stage(stage).limits.disk})")
    assert ("(--workdir, " in text) == (stage != "visualize")  # whose film lies elsewhere
    if stage == "train_policy":
        assert "/checkpoints/" in text  # which orbax writes, in threads


@pytest.mark.quick
def test_a_workdir_that_was_moved_meanwhile_is_told(tmp_path):
    workdir = tmp_path / "run"
    workdir.mkdir()
    with pytest.raises(UserError, match="removed or replaced meanwhile"), explained(workdir, "policy"):
        workdir.rename(tmp_path / "elsewhere")
