"""Casts and films: what they show is what the episode was, picture by picture."""

import json
import subprocess

import numpy as np
import pytest
from conftest import refusal
from PIL import Image
from real_replay import NEEDED, Emulator, made, play

from motif_jax.envs.gym_world import encode_picture
from motif_jax.replays.film import COLOURS, HEIGHT, PICTURE_ROWS, WIDTH, film, find_ffmpeg, paint, write_film
from motif_jax.replays.replay import COLUMNS, LEAST_ROWS, ROWS, describe, load_replay, save_replay
from motif_jax.replays.scene import STATUS_LINES
from motif_jax.screens import BACKGROUND, SHOWN
from motif_jax.structs import UserError


def test_a_cast_played_in_a_terminal_shows_every_frame(tmp_path):
    story, done = describe(play()), []
    write_film(tmp_path / "a.cast", story, 10.0, done.append)
    header, *events = [json.loads(line) for line in (tmp_path / "a.cast").read_text().splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, *NEEDED)
    assert len(header["theme"]["palette"].split(":")) == 16
    terminal, sheets = Emulator(NEEDED[1], NEEDED[0]), list(film(story, 10.0))
    assert done == list(range(1, len(sheets) + 1))
    assert len(events) == len(sheets) + 1  # every step has another number, so that none is left out
    for (start, kind, text), sheet in zip(events, sheets, strict=False):
        assert (start, kind) == (pytest.approx(sheet.start), "o")
        terminal.feed(text)
        terminal.assert_shows(sheet.canvas)
    assert events[-1][0] == pytest.approx(60 / 10 + 2 + 6)
    replay = story.replay  # and the sheets show the game, but for the list at the end
    for frame, sheet in enumerate(sheets[:-1]):
        assert (sheet.canvas.chars[:ROWS, :COLUMNS] == SHOWN[replay.chars[frame]]).all()
    assert (tmp_path / "a.cast").stat().st_size < 700 * len(sheets)


def test_a_gif_decodes_to_the_sheets(tmp_path):
    story = describe(play())
    write_film(tmp_path / "a.gif", story, 30.0, print)
    sheets, total = list(film(story, 30.0)), 0
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == len(sheets)
        assert gif.size == (NEEDED[0] * WIDTH, NEEDED[1] * HEIGHT)
        for number, sheet in enumerate(sheets):
            gif.seek(number)
            total += gif.info["duration"]
            assert total == pytest.approx(1000 * (sheet.start + sheet.seconds), abs=5)  # no error adds up
            if number % 9 == 0 or number > 58:
                assert (np.asarray(gif.convert("RGB")) == COLOURS[paint(sheet.canvas)]).all()
    assert (tmp_path / "a.gif").stat().st_size < 5000 * len(sheets)


def test_an_mp4_decodes_to_the_sheets(tmp_path):
    try:
        ffmpeg = find_ffmpeg()
    except UserError:
        pytest.skip("neither ffmpeg nor imageio-ffmpeg is here: bash launch/test.sh installs the latter")
    story = describe(made([f"message {number}" for number in range(9)], reward=[0] * 8))
    write_film(tmp_path / "a.mp4", story, 4.0, print)
    sheets = list(film(story, 4.0))
    height, width = NEEDED[1] * HEIGHT, NEEDED[0] * WIDTH
    decoded = subprocess.run(
        [ffmpeg, "-loglevel", "error", "-i", tmp_path / "a.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    pictures = np.frombuffer(decoded, np.uint8).reshape(-1, height, width, 3)
    assert len(pictures) == 12 * (8 / 4 + 2 + 6)  # 12 per second: the least multiple of 4 that players like
    for sheet in sheets:
        wanted = COLOURS[paint(sheet.canvas)].astype(int)
        assert np.abs(pictures[int(12 * sheet.start) + 1] - wanted).mean() < 4  # of 255


def test_films_show_the_games_pictures_and_crop_unused_rows(tmp_path):
    replay = made([str(number) for number in range(4)], reward=[0] * 3)
    replay.chars[...] = ord(" ")
    small = describe(replay)
    write_film(tmp_path / "small.gif", small, 10.0, print)
    with Image.open(tmp_path / "small.gif") as gif:
        assert gif.size == (NEEDED[0] * WIDTH, (LEAST_ROWS + len(STATUS_LINES)) * HEIGHT)
    red, blue = (encode_picture(np.full((30, 40, 3), color, np.uint8)) for color in ((200, 40, 40), (40, 40, 200)))
    ends = np.cumsum([len(red), 0, len(blue), 0])
    pictures = np.frombuffer(red + blue, np.uint8)
    pictured = replay._replace(pictures=pictures, picture_ends=ends)
    write_film(tmp_path / "pictured.gif", describe(pictured), 10.0, print)
    with Image.open(tmp_path / "pictured.gif") as gif:
        assert gif.size == (NEEDED[0] * WIDTH, (PICTURE_ROWS + len(STATUS_LINES)) * HEIGHT)
        middle = []
        for frame in range(gif.n_frames):
            gif.seek(frame)
            middle.append(gif.convert("RGB").getpixel((gif.width // 2, PICTURE_ROWS * HEIGHT // 2)))
    wanted = [(200, 40, 40)] * 2 + [(40, 40, 200)] * 2 + [BACKGROUND]  # and the list of messages
    assert np.abs(np.array(middle) - np.array(wanted)).max() < 16
    save_replay(tmp_path / "whole.npz", pictured)
    assert load_replay(tmp_path / "whole.npz", "--flag").picture(1) == red
    for wrong in (ends + 1, -ends, ends[::-1], None):
        save_replay(tmp_path / "wrong.npz", pictured._replace(picture_ends=wrong))
        refusal(lambda: load_replay(tmp_path / "wrong.npz", "--flag"), match=r"it is damaged \(pict")
