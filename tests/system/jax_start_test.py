import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

from motif_jax.system.machine import commit

COUNT = "from motif_jax.system.startup import divide_cpu; divide_cpu(3); import jax; print(jax.device_count())"


@pytest.mark.quick
@pytest.mark.parametrize(("said", "devices"), [
    ({}, 3), ({"JAX_NUM_CPU_DEVICES": "2"}, 2), ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, 4),
])  # fmt: skip
def test_a_cpu_is_divided_unless_the_environment_says_how(said, devices):
    kept = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    environment = kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)} | said
    found = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) == devices


def test_the_second_run_compiles_nothing(tmp_path):
    code = """
        import os
        from motif_jax.system.startup import keep_compiled_programs
        keep_compiled_programs(os.environ)
        import jax
        print(float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((8, 8)))))
    """
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", "\n".join(line.strip() for line in code.splitlines())]
    kept = []
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("512.0\n", "")
        kept.append({file.name: file.stat().st_mtime_ns for file in tmp_path.rglob("*-cache")})
    assert kept[0]
    assert kept[0] == kept[1]


@pytest.mark.quick
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
