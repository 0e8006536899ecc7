"""Every file is opened by a reader that refuses pipes and devices, and that has a limit."""

import ast
import contextlib
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from attacks import ATTACKS, at_once, little_memory

from motif_jax.actors import recorder
from motif_jax.config import file as config_file
from motif_jax.contrib import words
from motif_jax.contrib.guessing.scenes import SceneFiles
from motif_jax.episodes import playback
from motif_jax.language import gguf_file
from motif_jax.replays import replay
from motif_jax.structs import UserError
from motif_jax.system import files, foreign, metrics
from motif_jax.tokens import read_tokeniser
from motif_jax.transcripts import imports

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
    "safe_open",
    "load",
    "ZipFile",
}
# Files that others cannot change, or that are opened for writing or behind a check of their own; by the calls in them.
KNOWN = {
    "files.py": {"open", "os.open", "*.read_bytes"},  # of a workdir, which is trusted
    "system/foreign.py": {"open", "os.open", "read_bytes"},
    "system/files.py": {"np.lib.format.open_memmap", "zipfile.ZipFile"},  # to write; after `open_regular`
    "system/locks.py": {"open", "os.open"},
    "system/startup.py": {"open", "os.open"},  # /dev/null
    "actors/transport.py": {"open"},  # to write
    "devices/releases.py": {"safetensors.numpy.load"},  # of bytes
    "envs/nethack/engine.py": {"os.open"},  # a library of NLE
    "system/machine.py": {"*.read_text"},  # /proc, /sys
    "system/metrics.py": {"*.read_text"},  # /proc
    "language/tensors.py": {"safe_open"},  # after `check_regular`
    "pages/blocks.py": {"*.read_text"},  # of the package
    "preferences/writer.py": {"np.lib.format.open_memmap"},  # to write
    "rewards/torch_format.py": {"torch.load", "zipfile.ZipFile"},  # below LARGEST
    "system/jax_start.py": {"open"},  # /proc
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


# ---- what the readers refuse


def fill_line(file: Path) -> None:
    """One line without an end, a million times as long as any that is written."""
    file.write_text('{"a": "')
    os.truncate(file, 2**33)


def claim(file: Path) -> None:
    """An array whose head claims four gigabytes, of which a few bytes are there."""
    with open(file, "wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (2**30,)})
        out.write(bytes(64))


def claim_inside(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        claim(file.with_name("inner"))
        for name in ("about", *replay.DTYPES, "episode", "steps", *playback.COLUMNS):
            archive.write(file.with_name("inner"), f"{name}.npy")


def bomb(file: Path) -> None:
    """Some megabytes that unpack to more than sixteen gigabytes, most of them never made here."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("about", *replay.DTYPES, "episode", "steps", *playback.COLUMNS):
            if name in archive.namelist():
                continue
            archive.writestr(f"{name}.npy", bytes(1000))
        for member in archive.filelist:
            member.file_size = 2**34  # what the directory at the end says


READERS = {
    "files.read_json": files.read_json,
    "files.read_lines": lambda file: list(files.read_lines(file)),
    "files.read_lines, appended": lambda file: list(files.read_lines(file, appended=True)),
    "files.read_array": files.read_array,
    "files.read_array, mapped": lambda file: files.read_array(file, "r"),
    "files.read_array, to be changed": lambda file: files.read_array(file, "r+"),
    "files.read_arrays": lambda file: files.read_arrays(file, ["action"]),
    "foreign.read_text": foreign.read_text,
    "foreign.sha256_of": foreign.sha256_of,
    "replay": lambda file: replay.load_replay(file, "--x"),
    "tracks": playback.read_tracks,
    "metrics": lambda file: metrics.drop_rows_after(file, 1),
    "transcripts of LMRL-Gym": lambda file: list(imports.read_lmrl(file)),
    "CSV": lambda file: list(imports.csv_rows(file)),
    "JSON list": lambda file: list(imports.read_visdial(file)),
    "tokeniser": read_tokeniser,
    "GGUF": gguf_file.read_header,
    "vectors of words": words.read_vectors,
    "scenes": lambda file: SceneFiles(str(file), ""),
    "config": lambda file: config_file.read(str(file)),
}
ARRAYS = {"claim", "claim_inside", "bomb"}
FINE = {  # attacks that are none for a reader
    "foreign.sha256_of": ARRAYS, "config": ARRAYS, "metrics": ARRAYS,
    "tracks": {"pipe"},
}  # fmt: skip
STRANGE = {"pipe": os.mkfifo, "line": fill_line, "claim": claim, "claim_inside": claim_inside, "bomb": bomb,
           "terabyte": ATTACKS["a terabyte of nothing"]}  # fmt: skip


@pytest.mark.parametrize("attack", STRANGE)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_what_never_ends_at_once(tmp_path, reader, attack):
    file, make = tmp_path / "file.py", STRANGE[attack]
    make(file, tmp_path) if attack == "terabyte" else make(file)
    fine = attack in FINE.get(reader, ())
    expected = contextlib.nullcontext() if fine else pytest.raises((ValueError, OSError, UserError))
    with little_memory(2), at_once(), expected as refused:
        READERS[reader](file)
    assert fine or len(str(refused.value).splitlines()) == 1


def test_a_real_replay_of_the_longest_length_fits():
    step = sum(int(np.prod(shape)) * np.dtype(replay.DTYPES[name]).itemsize for name, shape in replay.SHAPES.items())
    step += 4 * 121 + np.dtype(replay.OPTIONAL["picture_ends"]).itemsize  # with the odds of all actions of NetHack
    assert (replay.LONGEST + 1) * step + recorder.MOST_PICTURES + 2**20 < replay.LARGEST  # with texts and heads
