"""Writes an episode as an MP4 film, encoded by ffmpeg."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from motif_jax.files import write_whole
from motif_jax.replays.bitmaps import paste
from motif_jax.replays.film import film, sheets_per_second, with_room_for_pictures
from motif_jax.replays.painter import HEIGHT, WIDTH, Painter
from motif_jax.replays.scene import needed
from motif_jax.replays.story import Story
from motif_jax.structs import UserError

SLOWEST = 10.0  # pictures per second; some video players cannot play fewer


def find_ffmpeg(flag: str) -> str:
    """Finds the program ffmpeg; raises UserError, which names `flag`, if it is not installed."""
    found = shutil.which("ffmpeg")
    if found:
        return found
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError(
            f"an .mp4 needs ffmpeg on the PATH, or `pip install imageio-ffmpeg`; a .gif needs neither ({flag})"
        )
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


def write_mp4(path: Path, story: Story, speed: float, progress: Callable[[int], None], flag: str) -> None:
    """Writes an MP4 atomically; calls `progress` with the number of finished sheets."""
    program = find_ffmpeg(flag)
    write_whole(path, lambda file: _write(file, program, story, speed, progress, flag))


def _write(
    file: BinaryIO, program: str, story: Story, speed: float, progress: Callable[[int], None], flag: str
) -> None:
    painter, story = Painter(), with_room_for_pictures(story)
    columns, rows = needed(story)
    colours = painter.colours.astype(np.uint8)
    rate = sheets_per_second(speed) * math.ceil(SLOWEST / sheets_per_second(speed))
    size = f"{columns * WIDTH}x{rows * HEIGHT}"
    command = [
        program, "-hide_banner", "-loglevel", "error", "-nostdin", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{rate:.6f}", "-i", "pipe:0",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", file.name,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as complaints, _process(command, complaints) as process:
        pictures = process.stdin
        assert pictures is not None
        shown = 0  # pictures so far; a sheet is repeated according to its duration
        with contextlib.suppress(BrokenPipeError):  # the exit status is checked below
            for number, sheet in enumerate(film(story, speed), 1):
                pixels = colours[painter.paint(sheet.canvas)]
                if sheet.picture:
                    pixels = paste(pixels, sheet.picture, story.rows * HEIGHT)
                data = pixels.tobytes()
                end = max(round(rate * (sheet.start + sheet.seconds)), shown + 1)
                for _ in range(end - shown):
                    pictures.write(data)
                shown = end
                progress(number)
            pictures.close()
        if process.wait():
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").split("\n")
            why = next((line for line in reversed(lines) if line.strip()), f"status {process.returncode}")
            raise UserError(f"{program} could not make the film: {why.strip()} ({flag})")


@contextlib.contextmanager
def _process(command: list[str], complaints: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program with a pipe as its input; kills it on exit if it is still running."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
