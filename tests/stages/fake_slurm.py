"""Commands of SLURM that do as the tests say."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, write_programs


class FakeSlurm:
    """A folder with commands. `squeue` gives a state, `scontrol` writes down what it is asked; others are given."""

    def __init__(self, folder: Path, **scripts: str):
        self._folder = folder
        known = {"squeue": 'echo "${FAKE_STATE:-RUNNING}"', "scontrol": f"echo $* >> {folder}/requeued"}
        write_programs(folder, known | scripts)

    @property
    def environment(self) -> Path:
        """A virtual environment in which these commands come first, and then this Python's."""
        activate = self._folder / "bin/activate"
        activate.parent.mkdir(exist_ok=True)
        activate.write_text(f'PATH="{self._folder}:{Path(sys.executable).parent}:$PATH"\n')
        return self._folder

    def start(self, script: Path | str, *arguments: str, **variables: str) -> subprocess.Popen:
        """A job of this script, below the root, on its first node."""
        known = {"VENV": str(self.environment), "SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "4711"}
        return subprocess.Popen(
            ["bash", str(ROOT / script), *arguments], cwd=self._folder, env=os.environ | known | variables,
            text=True, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    @property
    def requeued(self) -> list[str]:
        file = self._folder / "requeued"
        return file.read_text().splitlines() if file.exists() else []
