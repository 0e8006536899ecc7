"""Directories that are removed or replaced, and releases that replace others."""

import numpy as np
import pytest

from motif_jax.devices.releases import CARD, METADATA, write_release
from motif_jax.files import make_anew, remove_folder
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_is_made_anew_and_links_in_it_are_not_followed(tmp_path, inside):
    outside, folder = tmp_path / "outside", tmp_path / "deep/folder"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    folder.parent.mkdir()
    if inside:
        (folder / "data").mkdir(parents=True)
        (folder / "data/more").symlink_to(outside)
    else:
        folder.symlink_to(outside)
    make_anew(folder)
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert not any(folder.iterdir())
    remove_folder(folder)
    remove_folder(folder)
    assert not folder.exists()
    assert files_of(outside) == {"mine.txt": b"mine"}


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


@pytest.mark.parametrize(("name", "first"), [(CARD, False), (METADATA, True), ("policy.safetensors", True)])
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
