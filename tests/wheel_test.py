import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.journey
SOURCES = ("LICENSE", "README.md", "configs", "motif_jax", "pyproject.toml", "setup.cfg")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
RUN = """
import json, sys
from motif_jax.launch import command
status = command()
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
print(json.dumps(sorted(file for file in files if file)))
sys.exit(status)
"""


def run(command: list, cwd: Path, **environment: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Made by way of an archive of the sources, as `python -m build` does, but with the setuptools installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "src").mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "src" / name, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
        else:
            shutil.copy(ROOT / name, folder / "src" / name)
    pack = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run([sys.executable, "-c", pack, folder], folder / "src")
    (archive,) = folder.glob("*.tar.gz")
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", archive], folder)
    (made,) = folder.glob("*.whl")
    return made


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    package = ROOT / "motif_jax"
    files = [path for folder in (package, package / "configs") for path in folder.rglob("*")]
    wanted = {str(path.relative_to(ROOT)) for path in files if path.is_file() and "__pycache__" not in path.parts}
    assert "motif_jax/configs/motif.py" in wanted
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("motif_jax/")} == wanted


def test_an_installed_copy_runs_by_the_names_of_its_configs(wheel, tmp_path):
    site, script = tmp_path / "site", tmp_path / "site/bin/motif-jax"
    run([*PIP, "install", "--no-deps", "--no-index", "--target", site, wheel], tmp_path)
    flags = ["--config=quickstart:toy", "--workdir=run", "--stage=collect"]
    flags += ["--config.collect.num_pairs=20", "--config.collect.num_workers=1"]
    out = run([sys.executable, "-c", RUN, *flags], tmp_path, PYTHONPATH=str(site))
    files = json.loads(out.splitlines()[-1])
    ours = [file for file in files if "motif_jax" in Path(file).parts or "configs" in Path(file).parts]
    assert str(site / "motif_jax/configs/quickstart.py") in ours
    assert [file for file in ours if not file.startswith(f"{site}/")] == []
    assert (tmp_path / "run/dataset/dataset.json").is_file()
    again = run([script, *flags], tmp_path, PYTHONPATH=str(site))  # the console script, which finds it complete
    assert again == "collect: complete in 'run', skipped\n"
