"""What is recorded of the machine and of the code that ran on it."""

import shutil
import subprocess

import pytest

from motif_jax.system.machine import commit

pytestmark = pytest.mark.quick


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_commit_is_that_of_the_checkout_alone(tmp_path):
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@x")
        return subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, stdout=-1, text=True).stdout

    assert commit(tmp_path) == ""
    git("init", "--quiet")
    (tmp_path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "--quiet", "--message=x")
    known = git("rev-parse", "HEAD")[:12]
    (tmp_path / "results").write_text("are no change of the code")
    assert commit(tmp_path) == known
    (tmp_path / "code.py").write_text("2")
    assert commit(tmp_path) == f"{known}-dirty"
    (tmp_path / "installed").mkdir()  # within somebody's checkout, as an environment often is
    assert commit(tmp_path / "installed") == ""
