"""Datasets: opened in the published layout, refused when damaged, and written from episodes, interrupted at will."""

from pathlib import Path

import numpy as np
import pytest
from conftest import get_config, is_complete, refusal, run_stage
from small_dataset import LLAMA, write_published
from small_dataset import PUBLISHED_PAIRS as N

from motif_jax.captions import encode
from motif_jax.files import read_json
from motif_jax.preferences.store import FinishedEpisode, PairDataset, PairWriter, cut, stretch_starts
from motif_jax.stages import collect
from motif_jax.structs import ArraySpec, EpisodeInfo

pytestmark = pytest.mark.quick


def test_the_published_layout_opens_as_it_is(tmp_path):
    path, codes = write_published(tmp_path / "motif_dataset", 3)
    dataset = PairDataset(path)
    assert {"message", "blstats", "tty_chars"} <= dataset.data.keys()
    assert (len(dataset), dataset.length) == (N, 3)
    assert dataset.info["character"][0, 0] == "mon-hum-neu-mal"
    assert dataset.preference_names() == [LLAMA, "llama7b_msg_defaultgoal_default"]
    assert np.array_equal(dataset.preference(LLAMA), codes)
    table, ids = dataset.captions()
    assert ids.shape == (N, 2, 3)
    assert len(table) <= 4
    assert np.array_equal(table.messages[ids], dataset.data["message"])


def test_the_index_is_made_once_and_again_when_stale(tmp_path):
    path, _ = write_published(tmp_path, 1)
    PairDataset(path).captions()
    stamp = (path / "index/caption_id.npy").stat().st_mtime_ns
    PairDataset(path).captions()
    assert (path / "index/caption_id.npy").stat().st_mtime_ns == stamp
    messages = np.load(path / "data/message.npy")
    messages[0, 0, 0] = encode("Something else.")
    np.save(path / "data/message.npy", messages)
    table, ids = PairDataset(path).captions()
    assert table.text(int(ids[0, 0, 0])) == "Something else."


@pytest.mark.parametrize(("damage", "message"), [
    (lambda path: np.save(path / "data/message.npy", np.zeros((N, 2, 1, 256), np.float32)), "wrong type float32"),
    (lambda path: (path / "data/message.npy").unlink(), "has no data/message.npy"),
    (lambda path: np.save(path / "data/message.npy", np.zeros((N, 2, 0, 256), np.uint8)), "no data/message.npy with"),
    (lambda path: np.save(path / "info/score.npy", np.zeros(N)), r"info/score.npy .*has shape \(12,\), not \(12, 2\)"),
    (lambda path: np.save(path / f"preference/{LLAMA}.npy", np.full(N, 7, np.int8)), "must hold int8 codes 0 to 3"),
])  # fmt: skip
def test_a_damaged_dataset_is_refused_in_one_sentence(tmp_path, damage, message):
    path, _ = write_published(tmp_path, 1)
    damage(path)
    refusal(lambda: PairDataset(path).preference(LLAMA), "--config.collect.dataset", match=message)


FORMS = {"message": ((256,), "uint8"), "blstats": ((27,), "int32"), "rewards": ((), "float32")}
SPECS = {name: ArraySpec(*form) for name, form in FORMS.items()}
SIZES = {
    "num_pairs": 40, "length": 2, "specs": SPECS, "seed": 3, "keep_empty": 1.0, "character": "mon-hum-neu-mal",
    "figures": {"score": int, "turns": int, "gold": int, "max_depth": int, "experience_level": int},
}  # fmt: skip


def episode(number: int, steps: int) -> FinishedEpisode:
    """Every step can be told from every other: blstats 0 and 1 are episode and step."""
    info = EpisodeInfo(number, steps, 0.0, 1, False, (10 * number, steps, 0, 2, 1))
    blstats = np.zeros((steps, 27), np.int32)
    blstats[:, 0], blstats[:, 1] = number, np.arange(steps)
    messages = np.zeros((steps, 256), np.uint8)
    messages[::3, 0] = 65 + number
    rewards = np.arange(steps, dtype=np.float32)
    return FinishedEpisode(info, {"message": messages, "blstats": blstats, "rewards": rewards})


def write(writer: PairWriter, episodes: list[FinishedEpisode]) -> None:
    for one in episodes:
        if not writer.full and one.info.episode >= writer.progress["next_episode"]:
            writer.add(one)


EPISODES = [episode(number, steps) for number, steps in enumerate([25, 1, 60, 33, 90])]


def test_silent_stretches_can_be_thinned_out():
    """Messages stand at every third step: of 1,000 single steps 334 speak."""
    long = episode(1, 1000)
    none = stretch_starts(long, 1, seed=0, keep_empty=0.0)
    assert sorted(none.tolist()) == list(range(0, 1000, 3))
    some = stretch_starts(long, 1, seed=0, keep_empty=0.5)
    assert len(none) + 250 < len(some) < len(none) + 420


def make(writer: PairWriter, target: Path) -> PairDataset:
    target.mkdir()
    writer.assemble(target, {"collector": "test"}, {"seconds": 1.0})
    return PairDataset(target)


def test_pairs_hold_what_was_played(tmp_path):
    writer = PairWriter(tmp_path / "pieces", **SIZES)
    write(writer, EPISODES)
    assert writer.full
    dataset = make(writer, tmp_path / "dataset")
    assert (len(dataset), dataset.length) == (40, 2)
    seen = set()
    for pair in range(40):
        for side in range(2):
            number, start = dataset.info["episode"][pair, side], dataset.info["start"][pair, side]
            source = EPISODES[number]
            for key in SPECS:
                assert np.array_equal(dataset.data[key][pair, side], cut(source.steps[key], np.array([start]), 2)[0])
            assert dataset.info["score"][pair, side] == 10 * number
            seen.add((int(number), int(start)))
    assert len(seen) == 80  # nothing twice
    assert [n for n, _ in sorted(seen)].count(0) == 12  # 25 // 2
    facts = read_json(dataset.path / "dataset.json")
    assert (facts["num_pairs"], facts["collector"]) == (40, "test")


@pytest.mark.parametrize("killed_after", [1, 3, 4])
def test_an_interrupted_writer_ends_with_the_same_dataset(tmp_path, killed_after):
    plain = PairWriter(tmp_path / "plain", **SIZES)
    write(plain, EPISODES)
    first = PairWriter(tmp_path / "resumed", **SIZES)
    for one in EPISODES[:2]:  # each is a piece
        write(first, [one])
        first.commit()
    write(first, EPISODES[2:killed_after])  # in no piece
    second = PairWriter(tmp_path / "resumed", **SIZES)
    assert second.progress["next_episode"] == 1  # the second episode is too short for a moment, and so for a piece
    write(second, EPISODES)
    plain, resumed = make(plain, tmp_path / "one"), make(second, tmp_path / "other")
    names = sorted(str(file.relative_to(plain.path)) for file in plain.path.rglob("*.npy"))
    assert names == sorted(str(file.relative_to(resumed.path)) for file in resumed.path.rglob("*.npy"))
    for name in (*names, "dataset.json"):
        assert (plain.path / name).read_bytes() == (resumed.path / name).read_bytes()


def test_a_signal_between_two_lines_of_the_writer_loses_at_most_the_last_episode(tmp_path):
    """Its moments are there before they are counted."""
    writer = PairWriter(tmp_path / "pieces", **SIZES)
    write(writer, EPISODES[:2])
    before = writer.progress
    write(writer, EPISODES[2:3])
    writer.progress = before
    writer.commit()
    writer = PairWriter(tmp_path / "pieces", **SIZES)
    assert writer.moments == 12
    write(writer, EPISODES)
    assert np.bincount(make(writer, tmp_path / "dataset").info["episode"].ravel()).tolist() == [12, 0, 30, 16, 22]


def test_a_killed_run_that_had_finished_its_dataset_leaves_no_pieces(tmp_path):
    config = get_config("quickstart.py", collect__num_pairs=50, env__max_episode_steps=50, collect__num_workers=0)
    run_stage(collect, config, tmp_path)
    whole = sorted((tmp_path / "dataset").rglob("*"))
    (tmp_path / "dataset.pieces").mkdir()
    (tmp_path / "parts/collect.json").unlink()  # it was killed before both were done
    run_stage(collect, config, tmp_path)
    assert is_complete(collect, config, tmp_path)
    assert sorted((tmp_path / "dataset").rglob("*")) == whole
    assert not (tmp_path / "dataset.pieces").exists()
