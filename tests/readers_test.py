"""Every file is opened by a reader that refuses pipes and devices, and that has a limit."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick
PACKAGE = Path(__file__).parent.parent / "motif_jax"
OPENERS = {
    "open",
    "read_bytes",
    "read_text",
    "fromfile",
    "genfromtxt",
    "loadtxt",
    "memmap",
    "open_memmap",
    "load",
    "ZipFile",
}
# Files that others cannot change, or that are opened for writing or behind a check of their own; by the calls in them.
KNOWN = {
    "foreign.py": {"open", "os.open", "read_bytes"},
    "files.py": {"open", "np.lib.format.open_memmap", "zipfile.ZipFile"},  # to write; after `open_regular`
    "locks.py": {"open", "os.open"},
    "startup.py": {"open", "os.open"},  # /dev/null
    "actors/folders.py": {"open"},  # to write
    "actors/capacity.py": {"*.read_text"},  # /proc, /sys
    "annotation/shared_lines.py": {"open"},  # to write
    "compiled.py": {"open"},  # /proc
    "envs/nethack/engine.py": {"os.open"},  # a library of NLE
    "machine.py": {"*.read_text"},  # /proc
    "metrics.py": {"*.read_text"},  # /proc
    "pages/blocks.py": {"*.read_text"},  # of the package
    "preferences/writer.py": {"np.lib.format.open_memmap"},  # to write
    "rewards/torch_format.py": {"torch.load", "zipfile.ZipFile"},  # below LARGEST
    "stages/benchmark/__init__.py": {"*.read_text"},  # /proc
    "stages/benchmark/profile.py": {"gzip.open"},  # what the profiler has just written
    "stages/benchmark/threads.py": {"*.read_text"},  # /proc
}


def openers_in(file: Path) -> set[str]:
    """The calls that open files: a function or a module's function as it is written, and methods as `*.name`."""
    tree = ast.parse(file.read_text())
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("motif_jax")
        for alias in node.names
    }
    modules = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in OPENERS - imported:
            found.add(node.func.id)
        if isinstance(node.func, ast.Attribute) and node.func.attr in OPENERS:
            owner = ast.unparse(node.func.value)
            if owner == "json":  # it reads what is open
                continue
            if owner.split(".")[0] in modules:
                found.add(f"{owner}.{node.func.attr}")
            elif node.func.attr not in ("open", "load"):  # methods of our own classes
                found.add(f"*.{node.func.attr}")
    return found


def test_only_known_files_open_files_by_themselves():
    found = {str(file.relative_to(PACKAGE)): openers_in(file) for file in sorted(PACKAGE.rglob("*.py"))}
    assert {name: calls for name, calls in found.items() if calls} == KNOWN
