"""Files that a run opens where they lie, each replaced by a link to a file outside: that one stays as it is.

Which files these are is found by Python's audit events while a small workdir is made.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from damages import ORBAX, make_whole, run

from motif_jax.structs import UserError

pytestmark = pytest.mark.filterwarnings(ORBAX)
AGAIN = {  # what makes a stage that is complete open its files again
    "collect": {}, "annotate": {"annotate__ignore_existing": True}, "train_reward": {},
    "train_policy": {"policy__train_for_env_steps": 256, "policy__tensorboard": True},
    "evaluate": {"evaluate__policy": "random", "evaluate__beside": "", "evaluate__episodes": 4,
                 "evaluate__num_workers": 0}, "report": {},
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR
OPENED: list[str] = []


def note(event: str, arguments: tuple) -> None:
    if event == "open" and arguments[2] & WRITING and not arguments[2] & os.O_EXCL:
        OPENED.append(str(arguments[0]))


@pytest.fixture(scope="module")
def again(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A workdir, and the files that are opened in place when its stages run again, each with the first such stage."""
    sys.addaudithook(note)
    workdir = shutil.copytree(make_whole(), tmp_path_factory.mktemp("again") / "run")
    found: dict[str, str] = {}
    for stage, values in AGAIN.items():
        del OPENED[:]
        run(workdir, stage, **values)
        names = {str(Path(path).relative_to(workdir)) for path in OPENED if Path(path).is_relative_to(workdir)}
        found |= {name: stage for name in sorted(names) if name not in found and (workdir / name).is_file()}
    return workdir, found


def test_no_file_outside_is_changed_through_a_link(again, tmp_path):
    made, found = again
    assert {".lock", "policy/.lock", "policy/metrics.jsonl"} <= found.keys()
    for number, (name, stage) in enumerate(found.items()):
        workdir, outside = tmp_path / f"run{number}", tmp_path / f"outside{number}"
        shutil.copytree(make_whole() if stage != "evaluate" else made, workdir)
        canary = b"4711" if name.endswith(".lock") else (made / name).read_bytes()  # looks right, to be taken
        outside.write_bytes(canary)
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).unlink(missing_ok=True)
        (workdir / name).symlink_to(outside)
        refusal = ""
        try:
            run(workdir, stage, **AGAIN[stage])
        except UserError as error:
            refusal = str(error)
        assert outside.read_bytes() == canary, f"{name} was written through a link"
        assert not refusal or f"{str(workdir / name)!r} is a symbolic link" in refusal
    print(f"opened in place, and replaced by links: {', '.join(found)}")
