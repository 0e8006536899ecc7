"""Films: what they show is what the episode was, picture by picture."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import check_stage, get_config, refusal, run_stage
from PIL import Image
from real_replay import NEEDED, made, play

from motif_jax.contrib.films.film import COLOURS, HEIGHT, PICTURE_ROWS, SCALE, WIDTH, Gif, Mp4, film, find_ffmpeg, paint
from motif_jax.envs.gym_world import encode_picture
from motif_jax.networks.images import tile_atlas
from motif_jax.replays.replay import COLUMNS, LEAST_ROWS, ROWS, describe, load_replay, save_replay
from motif_jax.replays.scene import STATUS_LINES, Canvas
from motif_jax.screens import BACKGROUND, PALETTE, REVERSED, SHOWN
from motif_jax.stages import visualize
from motif_jax.structs import UserError


def shape(text):
    """Which pixels of its cells a text covers, in white."""
    canvas = Canvas(1, len(text))
    canvas.put(0, 0, (text, REVERSED - 1))
    return paint(canvas) == REVERSED


@pytest.mark.quick
def test_cells_have_the_colours_of_the_game_and_the_glyphs_of_the_font():
    canvas = Canvas(1, 2 * REVERSED)
    canvas.put(0, 0, ("#" * canvas.columns, 0))
    canvas.styles[0] = np.arange(canvas.columns)
    cells = COLOURS[paint(canvas)].reshape(HEIGHT, canvas.columns, WIDTH, 3)
    for style in range(canvas.columns):
        back, ink = (BACKGROUND, PALETTE[style % REVERSED])[:: 1 if style < REVERSED else -1]
        assert (cells[0, style, 0] == back).all()
        assert {tuple(pixel) for pixel in cells[:, style].reshape(-1, 3).tolist()} == {back, ink}
    # the font that the published network sees, each of its pixels doubled
    letters = "".join(chr(code) for code in range(33, 256) if code not in (*range(127, 161), 173))
    drawn = shape(letters)[::SCALE, ::SCALE].reshape(HEIGHT // SCALE, len(letters), -1)
    seen = [tile_atlas()[ord(letter), 15, ..., 0].any() for letter in letters]
    assert drawn.any((0, 2)).tolist() == seen == [True] * len(letters)


@pytest.mark.quick
def test_rules_and_blocks_join_and_other_signs_are_drawn():
    box = np.concatenate([shape("┌─┐"), shape("│ │"), shape("└─┘")])
    rows, columns = np.flatnonzero(box.any(1)), np.flatnonzero(box.any(0))
    middle = (slice(HEIGHT, 2 * HEIGHT), slice(WIDTH, 2 * WIDTH))
    assert box[rows[0], columns[0] : columns[-1] + 1].all()  # one closed line
    assert box[rows[0] : rows[-1] + 1, columns[-1]].all()
    assert not box[middle].any()
    assert [int(shape(bar)[:, 0].sum()) for bar in "▁▂▃▄▅▆▇█"] == [round(HEIGHT * part / 8) for part in range(1, 9)]
    signs = "→▶‖…·—"
    assert len({shape(sign).tobytes() for sign in signs}) == len(signs)
    assert (shape("“ǎ’") == shape("\"a'")).all()  # simpler ones for what the font lacks
    assert (shape("ŋ") == shape("?")).all()


@pytest.mark.journey
def test_a_film_is_written_and_said(tmp_path, capsys):
    save_replay(tmp_path / "replay.npz", play())
    file = tmp_path / "new/film.GIF"
    shown = {"replay": str(tmp_path / "replay.npz"), "export": str(file), "speed": 50.0}
    config = get_config(**{f"visualize.{name}": value for name, value in shown.items()})
    run_stage(visualize, config, tmp_path / "run")
    assert file.is_file()
    assert f"written to {str(file)!r}" in capsys.readouterr().out
    assert [other.name for other in file.parent.iterdir()] == [file.name]


@pytest.mark.quick
@pytest.mark.parametrize(("lacking", "file", "said"), [
    ("PIL", "a.gif", "a film needs Pillow: pip install pillow"),
    ("imageio_ffmpeg", "a.mp4", "an .mp4 needs ffmpeg: pip install imageio-ffmpeg; a .gif does not"),
    ("", "a.cast", "'a.cast' must end in one of .gif, .mp4"),
    ("", f"{__file__}/x.gif", "is not a directory"),
])  # fmt: skip
def test_what_a_film_lacks_is_said_before_anything_is_played(tmp_path, monkeypatch, lacking, file, said):
    monkeypatch.setitem(sys.modules, lacking, None)
    config = get_config(**{"visualize.export": file, "visualize.policy": "random"})
    refusal(lambda: check_stage(visualize, config, tmp_path), said, "(--config.visualize.export)")
    monkeypatch.undo()
    visualize.film_writer("a.gif").check()
    monkeypatch.setattr(visualize, "FILMS", {})  # without the folder
    refusal(lambda: visualize.film_writer("a.gif"), "this program writes no films")


def test_a_gif_decodes_to_the_sheets(tmp_path):
    story, total = describe(play()), 0
    Gif().write(tmp_path / "a.gif", story, 30.0)
    sheets = list(film(story, 30.0))
    for frame, sheet in enumerate(sheets[:-1]):  # all but the list at the end show the game
        assert (sheet.canvas.chars[:ROWS, :COLUMNS] == SHOWN[story.replay.chars[frame]]).all()
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == len(sheets)
        assert gif.size == (NEEDED[0] * WIDTH, NEEDED[1] * HEIGHT)
        for number, sheet in enumerate(sheets):
            gif.seek(number)
            total += gif.info["duration"]
            assert total == pytest.approx(1000 * (sheet.start + sheet.seconds), abs=5)  # no error adds up
            if number % 9 == 0 or number > 58:
                assert (np.asarray(gif.convert("RGB")) == COLOURS[paint(sheet.canvas)]).all()
    assert (tmp_path / "a.gif").stat().st_size < 4000 * len(sheets)


def test_an_mp4_decodes_to_the_sheets(tmp_path):
    try:
        ffmpeg = find_ffmpeg()
    except UserError:
        pytest.skip("imageio-ffmpeg is not here: bash launch/test.sh installs it")
    story = describe(made([f"message {number}" for number in range(9)], reward=[0] * 8))
    Mp4().write(tmp_path / "a.mp4", story, 4.0)
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
    Gif().write(tmp_path / "small.gif", small, 10.0)
    with Image.open(tmp_path / "small.gif") as gif:
        assert gif.size == (NEEDED[0] * WIDTH, (LEAST_ROWS + len(STATUS_LINES)) * HEIGHT)
    red, blue = (encode_picture(np.full((30, 40, 3), color, np.uint8)) for color in ((200, 40, 40), (40, 40, 200)))
    ends = np.cumsum([len(red), 0, len(blue), 0])
    pictures = np.frombuffer(red + blue, np.uint8)
    pictured = replay._replace(pictures=pictures, picture_ends=ends)
    Gif().write(tmp_path / "pictured.gif", describe(pictured), 10.0)
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
