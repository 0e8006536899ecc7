"""The one rule of imports: a room imports the shared files at the root, never another room; actors -> envs excepted."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "motif_jax"
ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
ALLOWED = {("actors", "envs")}


def imported_modules(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("motif_jax.")}


@pytest.mark.quick
def test_rooms_do_not_import_each_other():
    assert {"envs", "actors", "preferences", "stages"} <= ROOMS
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        for name in imported_modules(file):
            other = name.split(".")[1]
            if room in ROOMS - {"stages"}:
                assert other not in ROOMS or other == room or (room, other) in ALLOWED, f"{file} imports {name}"
            elif room not in ("stages", "launch.py", "experiment.py", "api.py", "__init__.py"):
                assert other not in ROOMS, f"the shared file {file} imports {name}"


@pytest.mark.quick
def test_launch_imports_no_stage_before_it_is_asked_for():
    for file in ("launch.py", "experiment.py"):
        stages = {name for name in imported_modules(PACKAGE / file) if name.startswith("motif_jax.stages.")}
        assert stages <= {"motif_jax.stages.NAMES", "motif_jax.stages.EXPERIMENT"}


@pytest.mark.quick
@pytest.mark.parametrize("module", ["motif_jax", "motif_jax.actors.worker", "motif_jax.launch"])
def test_workers_never_load_jax(module):
    code = f"import sys, {module}; print([m for m in ('jax', 'flax', 'torch', 'orbax') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.quick
def test_every_module_imports():
    modules = [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in PACKAGE.rglob("*.py")
    ]
    code = "import importlib\n" + "\n".join(f"importlib.import_module({module!r})" for module in modules)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_are_short_enough_to_read():
    long = {str(file): count for file in PACKAGE.rglob("*.py") if (count := len(file.read_text().splitlines())) > 320}
    assert not long
