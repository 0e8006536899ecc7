import numpy as np
import pytest
from conftest import bytes_of, get_config, refusal, run_stage
from small_dataset import LLAMA, random_pairs, write_dataset, write_published

from motif_jax.files import read_json, write_json
from motif_jax.preferences.store import PairDataset
from motif_jax.stages import annotate, collect
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
NAME = "lexicon_msg_defaultgoal"


def load_published(directory, data=("message",), info=(), preference=()) -> dict[str, np.ndarray]:
    """As the published code: everything in `preference/` is opened, and rows unknown in an annotation are left out."""
    found = {}
    for folder, wanted in (("data", data), ("info", info), ("preference", preference)):
        there = [(path.name.split(".")[0], path) for path in sorted((directory / folder).glob("*"))]
        opened = [(key, path) for key, path in there if folder == "preference" or key in wanted]
        arrays = {key: np.load(path, mmap_mode="r") for key, path in opened}
        for key in wanted:
            if key not in arrays:
                raise ValueError(f"there is no {folder}/{key}")
            found[key] = arrays[key]
    known = np.all([np.ones(len(next(iter(found.values()))), bool), *(found[key] != 3 for key in preference)], 0)
    return {key: array[known] for key, array in found.items()}


def label(workdir, **annotating):
    config = get_config()
    config.annotate.update(annotating)
    run_stage(annotate, config, workdir)


def adopt(source, workdir):
    workdir.mkdir(exist_ok=True)
    run_stage(collect, get_config(collect__dataset=str(source)), workdir)


@pytest.fixture
def workdir(tmp_path):
    write_dataset(tmp_path / "run/dataset", random_pairs(80))
    write_json(tmp_path / "run/dataset/dataset.json", {})  # which says that annotations are this program's
    return tmp_path / "run"


def test_the_published_loader_reads_what_is_annotated_here(workdir):
    for shard in range(3):
        label(workdir, num_shards=3, shard=shard)
        load_published(workdir / "dataset")  # also between the jobs
    label(workdir, goal="gold", max_pairs=40)
    assert {path.name for path in (workdir / "dataset/preference").iterdir()} == {f"{NAME}.npy", "lexicon_msg_gold.npy"}
    ours = PairDataset(workdir / "dataset")
    theirs = load_published(workdir / "dataset", info=["score"], preference=[NAME, "lexicon_msg_gold"])
    known = np.asarray(ours.preference("lexicon_msg_gold")) != 3
    assert 40 <= known.sum() < 80
    for name in (NAME, "lexicon_msg_gold"):
        assert theirs[name].dtype == np.int8
        assert np.array_equal(theirs[name], ours.preference(name)[known])
    assert np.array_equal(theirs["message"], ours.data["message"][known])


def test_a_published_dataset_is_used_annotated_and_stays_as_it_was(tmp_path, capsys):
    source, codes = write_published(tmp_path / "motif_dataset")
    np.save(source / "info/path.npy", np.array([["a/7.npz", None]] * len(codes), object), allow_pickle=True)
    np.save(source / "info/level_num.npy", np.full((len(codes), 2), "text"))
    np.save(source / "data/glance.backup.npy", np.zeros(3))
    before = bytes_of(source)
    workdir = tmp_path / "run"
    adopt(source, workdir)
    notices = [line for line in capsys.readouterr().out.splitlines() if "not read" in line]
    assert notices == [f"collect: not read in {source}: data/glance.backup.npy, info/level_num.npy, info/path.npy"]
    label(workdir, compare_with=LLAMA)
    assert bytes_of(source) == before
    theirs = load_published(workdir / "dataset", info=["score"], preference=[LLAMA])
    golden = load_published(source, info=["score"], preference=[LLAMA])
    assert theirs.keys() == golden.keys()
    assert all(np.array_equal(theirs[key], golden[key]) for key in golden)
    ours = PairDataset(workdir / "dataset")
    assert np.array_equal(ours.preference(LLAMA)[codes != 3], golden[LLAMA])
    assert np.array_equal(load_published(workdir / "dataset", preference=[NAME])[NAME], ours.preference(NAME))
    assert sorted(path.name for path in (workdir / "annotations").iterdir()) == [NAME, f"{NAME}.html"]


def test_an_annotation_comes_without_its_jobs_and_is_not_asked_for_again(workdir, tmp_path, capsys):
    label(workdir)
    adopt(workdir / "dataset", tmp_path / "other")
    folder = tmp_path / "other/annotations" / NAME
    assert sorted(file.name for file in folder.iterdir()) == ["merged.json", "prob.npy"]
    assert not read_json(folder / "merged.json")["shards"]
    label(tmp_path / "other")
    assert "distinct questions" not in capsys.readouterr().out.partition("annotate: labels in")[2]
    assert folder.with_suffix(".html").exists()
    record = read_json(folder / "merged.json")
    write_json(folder / "merged.json", record | {"facts": record["facts"] | {"tie_margin": 0.4}})
    refusal(lambda: label(tmp_path / "other"), "has tie_margin = 0.4")


def test_a_part_of_an_annotation_that_comes_with_a_dataset_is_gone_on_with(workdir, tmp_path):
    label(workdir, max_pairs=40)
    adopt(workdir / "dataset", tmp_path / "other")
    prob = tmp_path / "other/annotations" / NAME / "prob.npy"
    known = np.load(prob)
    other = np.where(known > 0.5, np.float32(0.75), np.where(known < 0.5, np.float32(0.25), known))
    np.save(prob, other)
    label(tmp_path / "other")
    labels = np.load(prob)
    assert (labels[~np.isnan(known)] == other[~np.isnan(known)]).all()
    assert not np.isnan(labels).any()


def test_answers_about_the_neutral_moment_come_with_an_annotation(workdir, tmp_path):
    label(workdir)
    file = workdir / "annotations" / NAME / "neutral.json"
    write_json(file, {"captions": [1, 0], "prob": [0.5, 1]})
    adopt(workdir / "dataset", tmp_path / "other")
    assert read_json(tmp_path / "other/annotations" / NAME / "neutral.json") == read_json(file)
    for number, (captions, prob) in enumerate([([10**6], [0.5]), ([True], [0.5]), ([1], [2.0]), ([1], [])]):
        write_json(file, {"captions": captions, "prob": prob})
        with pytest.raises(UserError, match="neutral.json' as this program's annotation: it"):
            adopt(workdir / "dataset", tmp_path / f"wrong-{number}")
