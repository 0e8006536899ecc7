"""Each folder of contrib can be refused alone: the rest is imported, explained, and every other config is checked."""

import subprocess
import sys

import pytest
from conftest import ROOT

from motif_jax.plugins import CONTRIB

pytestmark = [pytest.mark.repository, pytest.mark.slow]
FOLDERS = sorted(file.parent.name for file in CONTRIB.glob("*/__init__.py"))
CODE = """
import sys

refused = "motif_jax.contrib." + sys.argv[1]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == refused or name.startswith(refused + "."):
            raise ImportError(f"{name} is refused")

sys.meta_path.insert(0, Finder())
from absl import flags
from config_values_test import ARGUMENTS
from motif_jax import launch, names
from motif_jax.config.file import shipped

def run(*words):
    launch.FLAGS = flags.FlagValues()
    launch.define_flags(launch.FLAGS)
    return launch.main(["motif_jax", *words])

for table in [table for name, table in vars(names).items() if name.isupper() and isinstance(table, dict)]:
    for path in table.values():
        names.import_named(path)
folder = sys.argv[1]
others = {name: file for name, file in shipped().items() if f"contrib/{folder}/" not in str(file)}
for name, file in others.items():
    argument = ARGUMENTS.get(name, ("score",))[0]
    status = run(f"--config={file}" + f":{argument}" * bool(argument), "--workdir=" + sys.argv[2], "--dry_run")
    print(name, status)
try:
    run("--help")
except SystemExit as end:
    print("help", end.code)
"""


@pytest.mark.parametrize("folder", FOLDERS)
def test_without_a_folder_everything_else_still_starts(folder, tmp_path):
    command = [sys.executable, "-c", CODE, folder, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ends = dict(
        line.split() for line in done.stdout.splitlines() if len(line.split()) == 2 and line.split()[1] in "012"
    )
    assert ends.pop("help") == "0"
    assert {name for name, status in ends.items() if status != "0"} == NEEDS.get(folder, set()), done.stderr[-3000:]
    named = done.stderr.splitlines()
    assert any(f"the plugin {folder!r} is left out: motif_jax.contrib.{folder} is refused" in line for line in named)


NEEDS: dict[str, set[str]] = {}  # configs that use a folder of another one
