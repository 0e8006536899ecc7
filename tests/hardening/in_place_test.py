"""No directory outside of a workdir is changed through a link in it.

Each directory that a stage writes to is replaced by a link to one outside. Which these are is found by Python's audit
events while the stages run in a small workdir.
"""

import dataclasses
import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import get_config
from damages import ORBAX, digest, files_of, make_whole, run

from motif_jax import experiment
from motif_jax.stages import NAMES, find_stage
from motif_jax.structs import UserError

pytestmark = pytest.mark.filterwarnings(ORBAX)
AGAIN = {  # what makes a stage that is complete open its files again
    "collect": {}, "annotate": {"annotate__ignore_existing": True}, "train_reward": {},
    "train_policy": {"policy__train_for_env_steps": 256, "policy__tensorboard": True},
    "evaluate": {"evaluate__policy": "random", "evaluate__beside": "", "evaluate__episodes": 4,
                 "evaluate__num_workers": 0}, "audit": {}, "report": {},
    "visualize": {"visualize__policy": "random", "visualize__episode": "5"}, "export": {},
}  # fmt: skip
ANEW = {"collect": {"collect__num_pairs": 20}, "annotate": {}}
GAMES = {"env.world": "wordle", "collect.collector": "optimal", "collect.transcripts": 3}
# Events of changes, with the places of paths among their arguments.
CHANGES = {"os.mkdir": [0], "os.rmdir": [0], "os.remove": [0], "os.rename": [0, 1], "shutil.rmtree": [0]}
WRITING = os.O_WRONLY | os.O_RDWR
CHANGED: list[Path] = []  # directories in which something was made, renamed or removed


def note(event: str, arguments: tuple) -> None:
    if event == "open" and arguments[2] & WRITING:
        CHANGED.append(Path(os.path.abspath(str(arguments[0]))).parent)
    if event == "os.mkdir" and os.path.isdir(arguments[0]):
        return  # it is there already
    for place in CHANGES.get(event, ()):
        CHANGED.append(Path(os.path.abspath(str(arguments[place]))).parent)


@pytest.fixture(scope="module")
def anew(tmp_path_factory) -> dict[str, set[str]]:
    """The directories that stages change, by the names of the stages: as they first run, and as they run again."""
    sys.addaudithook(note)
    found: dict[str, set[str]] = {}
    workdir = tmp_path_factory.mktemp("anew") / "run"
    for stage, values in ANEW.items():
        del CHANGED[:]
        run(workdir, stage, **values)
        found[stage] = changed_below(workdir)
    config = get_config()
    config.update_from_flattened_dict(GAMES)
    del CHANGED[:]
    experiment.run(config, workdir.with_name("games"), ["collect"])
    found["collect"] |= changed_below(workdir.with_name("games"))
    return found


def changed_below(workdir: Path) -> set[str]:
    return {str(path.relative_to(workdir)) for path in CHANGED if path.is_relative_to(workdir) and path != workdir}


@pytest.fixture(scope="module")
def again(tmp_path_factory, anew) -> Path:
    """A workdir whose stages have run again."""
    workdir = shutil.copytree(make_whole(), tmp_path_factory.mktemp("again") / "run")
    (workdir / "reward/statistics.json").unlink()  # so that the stage writes its results again
    for stage, values in AGAIN.items():
        del CHANGED[:]
        run(workdir, stage, **values)
        anew[stage] = anew.get(stage, set()) | changed_below(workdir)
    return workdir


def makes(stage: str) -> tuple[str, ...]:
    """The directories that a stage says it writes to."""
    return find_stage(stage).makes


def test_a_stage_says_which_directories_it_changes(anew, again):
    assert {"dataset.partial/data", "transcripts.partial/texts"} <= anew["collect"]
    assert {"evaluate/random", "evaluate/random/replays"} <= anew["evaluate"]
    assert {"report"} <= anew["report"]
    for stage, folders in anew.items():
        said = {path for path in folders if path.split("/")[0] in makes(stage)}
        assert folders == said, f"{stage} changes {folders - said}, which its `makes` does not name"
    print(f"directories that are changed, by stage: { {stage: len(folders) for stage, folders in anew.items()} }")


@pytest.mark.parametrize("stage", NAMES)
def test_no_directory_outside_is_changed_through_a_link(again, tmp_path, monkeypatch, stage):
    module = importlib.import_module(f"motif_jax.stages.{stage}")
    due = dataclasses.replace(module.STAGE, is_complete=lambda config, workdir: False)
    monkeypatch.setattr(module, "STAGE", due)
    inside = {str(path.relative_to(again)) for path in again.rglob("*") if path.is_dir()}
    inside = {path for path in inside if path.split("/")[0] in makes(stage)}
    workdir, outside = shutil.copytree(again, tmp_path / "run"), tmp_path / "outside"
    for name in sorted({*makes(stage), *inside}):
        place = workdir / name
        place.mkdir(parents=True, exist_ok=True)
        place.rename(outside)  # with all that it had, beside what is the user's
        (outside / "replays").mkdir(exist_ok=True)
        mine = outside / "replays/mine.txt"
        mine.write_text("mine")
        place.symlink_to(outside)
        before = files_of(outside), digest(*files_of(outside))
        with pytest.raises(UserError, match=rf"{name}' is a link to .*--workdir") as refused:
            run(workdir, stage, **AGAIN.get(stage, {}))
        assert "\n" not in str(refused.value)
        assert (files_of(outside), digest(*files_of(outside))) == before
        mine.unlink()
        place.unlink()
        outside.rename(place)


def test_what_is_complete_is_read_through_a_link(again, tmp_path, capsys):
    """A dataset that lies on another disk: whoever only reads it goes on."""
    workdir = shutil.copytree(again, tmp_path / "run")
    shutil.move(workdir / "dataset", tmp_path / "elsewhere")
    (workdir / "dataset").symlink_to(tmp_path / "elsewhere")
    (workdir / "report/report.json").unlink()
    run(workdir, "report")
    run(workdir, "train_reward")
    assert "train_reward: complete" in capsys.readouterr().out
    (tmp_path / "linked").symlink_to(workdir)
    run(tmp_path / "linked", "train_policy", policy__train_for_env_steps=320)


def test_results_of_others_are_not_those_of_a_player(again, tmp_path):
    workdir = shutil.copytree(again, tmp_path / "run")
    folder = workdir / "evaluate/random"
    (folder / "replays/mine.npz").write_text("mine")
    run(workdir, "evaluate", **AGAIN["evaluate"] | {"evaluate__replays": "worst"})
    assert {file.name for file in (folder / "replays").iterdir()} >= {"mine.npz"}
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "tracks.npz").write_text("mine")
    with pytest.raises(UserError, match=r"random/tracks.npz' was not made by this program: move it away"):
        run(workdir, "evaluate", **AGAIN["evaluate"])
    assert files_of(folder) == [folder / "tracks.npz"]
