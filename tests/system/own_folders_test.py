"""What this program removes or replaces is what it has made, and nothing else."""

import os
import shutil

import numpy as np
import pytest

from motif_jax.devices.releases import CARD, FACTS, write_release
from motif_jax.preferences.shards import Part, Shard
from motif_jax.preferences.writer import PairWriter
from motif_jax.structs import ArraySpec, Episode, Turn, UserError
from motif_jax.system.own_folders import MARKER, check_no_links, make_anew, remove_made
from motif_jax.transcripts.store import TranscriptWriter

pytestmark = pytest.mark.quick
NAMES = r"data/\w+\.npy|all\.json"


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(folder):
    make_anew(folder, NAMES)
    (folder / "data").mkdir()
    (folder / "data/x.npy").write_bytes(b"x")
    (folder / "data/.x.npy.0123456789ab.tmp").write_bytes(b"half")  # of a writer that was killed
    (folder / "all.json").write_text("{}")


def test_what_was_made_is_made_anew(tmp_path):
    folder = tmp_path / "deep/folder"
    fill(folder)
    make_anew(folder, NAMES)
    assert files_of(folder).keys() == {MARKER}
    remove_made(folder, NAMES)
    remove_made(folder, NAMES)
    assert not folder.exists()


def test_what_a_killed_process_left_while_it_removed_is_removed(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    for last in range(100):
        fill(folder)
        calls = iter(range(last))
        with monkeypatch.context() as patched:
            for name in ("unlink", "rmdir", "replace"):
                real = getattr(os, name)
                patched.setattr(os, name, lambda *a, real=real, **b: (next(calls), real(*a, **b)))
            try:
                make_anew(folder, NAMES)
            except (StopIteration, RuntimeError):
                pass
            else:
                break
        make_anew(folder, NAMES)
        assert files_of(folder).keys() == {MARKER}
    assert 3 < last < 99


def link_to_it(folder):
    shutil.move(folder, folder.with_name("outside"))
    folder.symlink_to(folder.with_name("outside"))


def foreign_file(folder):
    (folder / "data/notes.txt").write_text("mine")


def foreign_link(folder):
    folder.with_name("outside").mkdir()
    (folder / "data/more").symlink_to(folder.with_name("outside"))


def no_marker(folder):
    (folder / MARKER).unlink()


def a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("mine")


@pytest.mark.parametrize("change", [link_to_it, foreign_file, foreign_link, no_marker, a_file])
def test_what_was_not_made_is_neither_removed_nor_changed(tmp_path, change):
    folder = tmp_path / "folder"
    fill(folder)
    change(folder)
    before = files_of(tmp_path)
    for act in (make_anew, remove_made):
        with pytest.raises(UserError, match=r"^'.*/folder' .* this program|^'.*/folder' is not a directory") as refused:
            act(folder, NAMES)
        assert "move it away (--workdir)" in str(refused.value)
        assert files_of(tmp_path) == before


def test_a_workdir_may_be_a_link_and_what_is_in_it_may_not(tmp_path):
    (tmp_path / "real/policy/checkpoints").mkdir(parents=True)
    (tmp_path / "real/policy/file").symlink_to(tmp_path / "anything")  # of files, each writer decides
    (tmp_path / "real/policy/file").unlink()
    (tmp_path / "run").symlink_to("real")
    check_no_links(tmp_path / "run", ["policy", "missing"])
    (tmp_path / "run/policy/checkpoints/5").symlink_to("..")
    with pytest.raises(
        UserError, match="checkpoints/5' is a link to .*/policy', and nothing is written through a link"
    ):
        check_no_links(tmp_path / "run", ["policy"])
    check_no_links(tmp_path / "run", ["missing"])


# ---- who makes directories


def write_transcripts(workdir):
    writer = TranscriptWriter()
    writer.add(Episode((Turn("a", 1.0),), True))
    writer.write(workdir / "transcripts", {})


def begin_pairs(workdir):
    PairWriter(workdir / "dataset", num_pairs=2, length=1, specs={"message": ArraySpec((256,), "uint8")}, figures={},
               seed=0, keep_empty=1.0)  # fmt: skip


@pytest.mark.parametrize(("write", "name"), [(write_transcripts, "transcripts"), (begin_pairs, "dataset")])
@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_foreign_directory_with_the_name_of_a_half_made_one_stays(tmp_path, write, name, kind):
    outside = tmp_path / "outside"
    place = tmp_path / f"{name}.partial"
    (outside if kind == "link" else place).mkdir()
    if kind == "link":
        place.symlink_to(outside)
    (place / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"partial' .*move it away \(--workdir\)"):
        write(tmp_path)
    assert files_of(place.resolve()) == {"mine.txt": b"mine"}
    assert not (tmp_path / name).exists()


def test_of_a_shard_only_its_own_files_are_deleted(tmp_path):
    (tmp_path / "shard-of-glass.txt").write_text("mine")
    with Shard(tmp_path, Part(0, 1), 2, {"dataset": "a"}, ignore_existing=True) as shard:
        shard.set(np.array([0, 1]), np.array([0.1, 0.9]), 0.1)
        shard.commit(True, {})
    with Shard(tmp_path, Part(0, 2), 1, {"dataset": "b"}, ignore_existing=True):
        pass
    assert (tmp_path / "shard-of-glass.txt").read_text() == "mine"
    assert not (tmp_path / "shard-00000-of-00001.npy").exists()


ARRAYS = {"policy": {("params", "a"): np.ones(3, np.float32)}}


def release(directory, card="# card"):
    write_release(directory, ARRAYS, {"name": "x"}, card, None)


def test_a_release_replaces_a_release(tmp_path):
    release(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    release(tmp_path, "# another card")
    assert (tmp_path / CARD).read_text() == "# another card"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / CARD).write_text("# a third card")  # an export with this card was killed before its config.json
    release(tmp_path, "# a third card")


@pytest.mark.parametrize("name", [CARD, FACTS, "policy.safetensors", "reward.safetensors", "best.npz"])
@pytest.mark.parametrize("first", [False, True])
def test_a_release_replaces_no_file_of_others(tmp_path, name, first):
    if first:  # and then it was changed, or put there
        release(tmp_path)
    (tmp_path / name).write_text('{"mine": 1}')
    before = files_of(tmp_path)
    with pytest.raises(
        UserError, match=rf"{name}' would be replaced, but was changed since .*: name another .*was killed"
    ):
        release(tmp_path, "# new")
    assert files_of(tmp_path) == before
