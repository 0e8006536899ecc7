import contextlib
import os
import pickle
import shutil

import jax
import numpy as np
import pytest

from motif_jax.devices.checkpoints import LAYOUT, Checkpoints, reading
from motif_jax.structs import UserError

STATE = {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "more": [np.int32(3), np.zeros(2)]}


def saved(directory, **facts):
    checkpoints = Checkpoints(directory)
    checkpoints.save(5, STATE, facts, 0.5)
    return checkpoints


def test_metadata_are_copied_when_they_are_saved(tmp_path):
    """They are written while training goes on, and it goes on with the same list."""
    history = [{"epoch": 0, "loss": float("nan")}]
    checkpoints = saved(tmp_path, history=history, pair=(1, 2))
    history.append({"epoch": 1})
    checkpoints.close()
    with reading(tmp_path) as opened:
        step, state, metadata = opened.readable("last")
    assert (step, [row["epoch"] for row in metadata["history"]], metadata["pair"]) == (5, [0], [1, 2])
    assert all(map(np.array_equal, jax.tree.leaves(state), jax.tree.leaves(STATE)))


def test_a_checkpoint_of_another_layout_is_refused_and_stays_where_it_is(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("motif_jax.devices.checkpoints.LAYOUT", LAYOUT + 1)
        saved(tmp_path).close()
    for read in (lambda opened: opened.readable("last"), lambda opened: opened.latest()):
        with reading(tmp_path) as opened, pytest.raises(UserError, match=f"is {LAYOUT + 1}, .* reads layout {LAYOUT}:"):
            read(opened)
    assert [path.name for path in tmp_path.iterdir()] == ["5"]


class Evil:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def flip_one(data):
    return data[: len(data) * 3 // 4] + bytes([data[len(data) * 3 // 4] ^ 1]) + data[len(data) * 3 // 4 + 1 :]


DAMAGE = {  # what becomes of the bytes of a file
    "truncated": lambda data, trace: data[: len(data) // 2],
    "pickle": lambda data, trace: pickle.dumps(Evil(trace)),
    "not text": lambda data, trace: b"\xff\xfe" * 40,
    "one bit": lambda data, trace: flip_one(data),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of orbax's own event loop
@pytest.mark.filterwarnings("ignore:checkpoint .* cannot be read")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_checkpoint_reads_as_it_was_written_or_not_at_all(tmp_path, damage):
    """Each of its files is damaged, alone; then one sentence refuses it, or the one before it is read."""
    checkpoints = Checkpoints(tmp_path / "good")
    kernels = np.random.default_rng(0).integers(256, size=(3, 100_000), dtype=np.uint8)  # too random to be compressed
    for step in (1, 2):
        checkpoints.save(step, {"kernel": kernels[step]}, {"step": step})
    checkpoints.close()
    files = [file for file in (tmp_path / "good/2").rglob("*") if file.is_file()]
    read = 0
    for number, file in enumerate(files):
        folder = shutil.copytree(tmp_path / "good", tmp_path / str(number))
        damaged = DAMAGE[damage](file.read_bytes(), tmp_path / "trace")
        (folder / file.relative_to(tmp_path / "good")).write_bytes(damaged)
        with contextlib.suppress(UserError), reading(folder) as opened:
            step, state, metadata = opened.readable("last")
            assert metadata["step"] == step
            np.testing.assert_array_equal(state["kernel"], kernels[step])
            read += 1
    assert read
    assert not (tmp_path / "trace").exists(), "a stranger's code was executed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of orbax's own event loop
def test_training_goes_on_from_the_last_good_checkpoint_but_never_from_none(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, {"kernel": np.arange(6.0) * step}, {})
    for step, expected in ((2, contextlib.nullcontext()), (1, pytest.raises(UserError, match="no checkpoint in "))):
        checkpoints.close()
        for file in (tmp_path / f"{step}/state").rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        checkpoints = Checkpoints(tmp_path)
        with pytest.warns(UserWarning, match=f"checkpoint {step} in .* cannot be read"), expected:
            assert checkpoints.latest()[0] == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "unreadable-2"]
    checkpoints.close()


def test_surplus_checkpoints_of_a_killed_run_are_deleted_by_the_next(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=10)
    for step in range(4):
        checkpoints.save(step, STATE, {}, 1.0 - step)
    checkpoints.close()
    with reading(tmp_path) as opened:
        opened.readable("last")
    assert len(list(tmp_path.iterdir())) == 4  # who only looks takes nothing away
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest()[0] == 3
    checkpoints.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_arrays_without_elements_are_put_back(tmp_path):
    """Orbax refuses them: a network without recurrent state, or a table without rows, may have some."""
    tree = {
        "kernel": np.ones((2, 3)),
        "core": {"kernel": np.zeros((3, 0), np.float32)},
        "table": {"rows": np.zeros((0, 256), np.uint8)},
        "more": [np.ones(1), np.zeros(0, np.int64), np.ones(2)],
    }
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, tree, {})
    _, read, _ = checkpoints.latest()
    assert jax.tree.structure(read) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(read), jax.tree.leaves(tree), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one, other)
    checkpoints.close()
