import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from attacks import little_memory
from hypothesis import given
from hypothesis import strategies as st

from motif_jax.contrib import words
from motif_jax.contrib.guessing.world import SceneFiles
from motif_jax.envs.babyai.manual import read_manual
from motif_jax.episodes import playback
from motif_jax.language import gguf_file
from motif_jax.replays import replay
from motif_jax.structs import UserError
from motif_jax.system import foreign, machine
from motif_jax.tokens import read_tokeniser
from motif_jax.transcripts import imports

pytestmark = pytest.mark.quick


def fill_line(file: Path) -> None:
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
        for name in ("about", *replay.ARRAYS, "episode", "steps", *playback.Track._fields):
            archive.write(file.with_name("inner"), f"{name}.npy")


def bomb(file: Path) -> None:
    """Some megabytes that unpack to more than sixteen gigabytes, most of them never made here."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("about", *replay.ARRAYS, "episode", "steps", *playback.Track._fields):
            if name in archive.namelist():
                continue
            archive.writestr(f"{name}.npy", bytes(1000))
        for member in archive.filelist:
            member.file_size = 2**34  # what the directory at the end says


READERS = {
    "machine.read_array": machine.read_array,
    "machine.read_array, mapped": lambda file: machine.read_array(file, mapped=True),
    "machine.read_arrays": lambda file: machine.read_arrays(file, ["action"], (), 2**20),
    "foreign.read_text": foreign.read_text,
    "replay": lambda file: replay.load_replay(file, "--x"),
    "transcripts of LMRL-Gym": lambda file: list(imports.read_lmrl(file)),
    "CSV": lambda file: list(imports.csv_rows(file)),
    "JSON list": lambda file: list(imports.read_visdial(file)),
    "tokeniser": read_tokeniser,
    "GGUF": gguf_file.read_header,
    "manual": read_manual,
    "vectors of words": words.read_vectors,
    "scenes": lambda file: SceneFiles(str(file), ""),
}
STRANGE = {"line": fill_line, "claim": claim, "claim_inside": claim_inside, "bomb": bomb, "pipe": os.mkfifo}


@pytest.mark.parametrize("attack", STRANGE)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_what_never_ends_at_once(tmp_path, reader, attack):
    file, make = tmp_path / "file.py", STRANGE[attack]
    make(file)
    with little_memory(2), pytest.raises((ValueError, OSError, UserError)) as refused:
        READERS[reader](file)
    assert len(str(refused.value).splitlines()) == 1


BITS = st.lists(st.integers(0, 8 * 200), max_size=3)


@given(st.sampled_from(["i1", "f4", "u1"]), BITS, st.none() | st.integers(0, 200))
def test_any_bytes_are_an_array_or_one_sentence(tmp_path_factory, dtype, bits, length):
    file, said = tmp_path_factory.mktemp("bytes") / "x.npy", ""
    np.save(file, np.arange(40).astype(dtype))
    data = bytearray(file.read_bytes())
    for bit in bits:
        data[bit // 8 % len(data)] ^= 1 << bit % 8
    file.write_bytes(data[:length])
    for mapped in (False, True):
        try:
            assert isinstance(machine.read_array(file, mapped), np.ndarray)
        except ValueError as error:
            said = str(error)
        assert len(said.splitlines()) <= 1
    assert file.stat().st_size <= len(data)
