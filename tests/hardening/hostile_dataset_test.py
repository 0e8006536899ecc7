"""Datasets that strangers have made to harm: nothing hangs, nothing from elsewhere is copied, no disk is filled.

Whatever is not needed is left out, with a line; whatever is needed is refused in one sentence.
"""

import os
import shutil

import numpy as np
import pytest
from attacks import ATTACKS, SECRET, make_outside
from conftest import get_config, refusal, run_stage
from small_dataset import LLAMA, PUBLISHED_PAIRS, write_published

from motif_jax.files import write_json
from motif_jax.preferences.store import PairDataset, annotation_folder
from motif_jax.stages import collect

NEEDED = ("data/message.npy", "data/tty_chars.npy", "info/score.npy", "info/character.npy", f"preference/{LLAMA}.npy")
BESIDE = (
    "data/extra.npy", "info/.hidden.npy", "preference/no name.npy", "preference/mine", "index",
    "preference/\x1b[2J\x1b]0;title\a.npy", "info/" + 120 * "\udcff", "annotations",
)  # fmt: skip


@pytest.fixture
def source(tmp_path):
    return write_published(tmp_path / "motif_dataset")[0]


@pytest.fixture
def outside(tmp_path):
    return make_outside(tmp_path / "elsewhere", (PUBLISHED_PAIRS, 2, 1, 256))


def adopt(source, workdir, follow_links=False):
    config = get_config()
    config.collect.update({"dataset": str(source), "follow_links": follow_links})
    workdir.mkdir()
    run_stage(collect, config, workdir)


def put(attack, place, outside):
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    ATTACKS[attack](place, outside)


def check_harmless(workdir, source, outside):
    """Nothing from elsewhere is in the workdir, nor a link to it; nothing but small files and links to arrays."""
    for path in workdir.rglob("*"):
        if path.is_symlink():
            assert path.resolve().is_relative_to(source.resolve())
            assert path.resolve().is_file()
        elif not path.is_dir():
            assert path.stat().st_size < 100_000
            assert SECRET not in path.read_bytes()
    assert (outside / "secret.txt").read_bytes() == SECRET


@pytest.mark.parametrize(("name", "attack"), [
    *((NEEDED[0], attack) for attack in ATTACKS), *((name, "link to an array elsewhere") for name in NEEDED[1:]),
    (NEEDED[-1], "pipe"),
])  # fmt: skip
def test_what_is_needed_is_refused_in_one_sentence(source, outside, tmp_path, capsys, name, attack):
    put(attack, source / name, outside)
    if name.startswith("preference") and attack == "pipe":  # no array; a link to one elsewhere is refused
        adopt(source, tmp_path / "run")
        assert f"collect: not read in {source}: {name}" in capsys.readouterr().out
    else:
        flags = "--config.collect.dataset|--config.collect.follow_links=True"
        refusal(lambda: adopt(source, tmp_path / "run"), name, match=flags)
    check_harmless(tmp_path / "run", source, outside)


@pytest.mark.parametrize("attack", ["link to an array elsewhere", "pipe"])
def test_what_is_not_needed_is_left_out_with_a_line(source, outside, tmp_path, capsys, attack):
    for number, name in enumerate(BESIDE):
        put(attack, source / name, outside)
        adopt(source, tmp_path / f"run{number}")
        printed = capsys.readouterr().out
        listed = name.startswith(("data/", "info/", "preference/"))
        assert (f"not read in {source}: {name.split('/')[0]}/" in printed) == listed, name
        assert printed.replace("\n", "").isprintable()
        assert PairDataset(tmp_path / f"run{number}/dataset").preference_names() == [
            LLAMA, "llama7b_msg_defaultgoal_default",
        ]  # fmt: skip
        check_harmless(tmp_path / f"run{number}", source, outside)
        put("empty", source / name, outside)
        (source / name).unlink()


@pytest.mark.parametrize(("name", "content", "problem"), [
    ("prob.npy", np.full(PUBLISHED_PAIRS, 7.5, np.float32), "it does not have the probabilities of this dataset"),
    ("prob.npy", np.zeros((1, PUBLISHED_PAIRS), np.float32), "it does not have the probabilities of this dataset"),
    ("merged.json", b'{"facts": {}}', "'missing_shards' is missing, or not known"),
    ("merged.json", b'{"facts": {}, "missing_shards": []}', "'dataset' is missing, or not known"),
])  # fmt: skip
def test_labels_that_this_program_did_not_write_are_refused(source, tmp_path, name, content, problem):
    (source / "dataset.json").write_text("{}")
    folder = annotation_folder(source, LLAMA)
    write_json(folder / "merged.json", {"facts": {"dataset": "of rows"}, "missing_shards": []})
    np.save(folder / "prob.npy", np.full(PUBLISHED_PAIRS, 0.5, np.float32))
    adopt(source, tmp_path / "run")
    assert (annotation_folder(tmp_path / "run/dataset", LLAMA) / "prob.npy").is_file()
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        np.save(folder / name, content)
    refusal(lambda: adopt(source, tmp_path / "other"), match=rf"cannot read .*: {problem} \(--config.collect.dataset\)")


def test_links_that_lead_out_are_followed_when_the_user_asks_for_it(source, outside, tmp_path):
    """As in caches that keep one copy of each file under its checksum."""
    codes = np.load(source / f"preference/{LLAMA}.npy")
    for name in ("data/message.npy", "info/score.npy", f"preference/{LLAMA}.npy"):
        blob = outside / name.replace("/", "-")
        (source / name).rename(blob)
        (source / name).symlink_to(blob)
    refusal(lambda: adopt(source, tmp_path / "refused"), "message.npy", "leads out of it, to ", "follow_links=True")
    adopt(source, tmp_path / "run", follow_links=True)
    dataset = PairDataset(tmp_path / "run/dataset")
    assert np.array_equal(dataset.data["message"], np.load(outside / "data-message.npy"))
    assert np.array_equal(dataset.preference(LLAMA), codes)
    assert not (tmp_path / f"run/dataset/preference/{LLAMA}.npy").is_symlink()


def test_messages_that_were_never_written_fill_no_disk(source, tmp_path):
    """Two billion pairs, of which nothing but the head takes room on the stranger's disk."""
    for name in ("data", "info", "preference"):
        shutil.rmtree(source / name)
    (source / "data").mkdir()
    pairs, file = 2**31, source / "data/message.npy"
    with open(file, "wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": (pairs, 2, 1, 256)})
        head = out.tell()
    os.truncate(file, head + pairs * 512)
    refusal(lambda: adopt(source, tmp_path / "run"), "almost all of it is a hole")
    assert sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if not path.is_symlink()) < 100_000
