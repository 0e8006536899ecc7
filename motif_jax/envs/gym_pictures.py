"""What environments of gymnasium draw of themselves, as replays keep it: small pictures, and text with colours."""

from __future__ import annotations

import io
import re

import numpy as np

from motif_jax.envs.drawing import GREY, Pieces

SIDE = 320  # pixels that the longer side of a picture has at most
QUALITY = 80  # of WebP, out of 100
REVERSED = 16  # added to a colour that stands behind the character
STYLE = re.compile(r"\033\[([\d;]{0,40})m")
OTHER = re.compile(r"\033\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # what a terminal takes for other commands


def encode_picture(pixels: np.ndarray) -> bytes:
    """A picture as WebP, made smaller if it is large. [height, width, 3] uint8"""
    from PIL import Image  # takes long to import, and most games are never shown

    picture = Image.fromarray(pixels)
    picture.thumbnail((SIDE, SIDE))
    packed = io.BytesIO()
    picture.save(packed, "WEBP", quality=QUALITY, method=2)
    return packed.getvalue()


def pieces_of_ansi(text: str) -> list[Pieces]:
    """The lines of a text for a terminal, as pieces with the colours that its escape sequences ask for."""
    rows, color = [], GREY
    for line in text.strip("\n").split("\n"):
        pieces: Pieces = []
        for number, part in enumerate(STYLE.split(line)):
            if number % 2:
                color = _color(part, color)
            elif plain := OTHER.sub("", STYLE.sub("", part)):
                pieces.append((plain, color))
        rows.append(pieces)
    return rows


def _color(codes: str, color: int) -> int:
    """The colour after codes of a terminal, of which 30 to 37 and 90 to 97 colour the character, others its ground."""
    for code in map(int, filter(None, codes.split(";") if codes else ["0"])):
        ground, dark = divmod(code, 10)
        if code in (0, 39, 49):
            color = GREY
        elif code == 7:
            color |= REVERSED
        elif ground in (3, 9) and dark < 8:
            color = dark + 8 * (ground == 9)
        elif ground in (4, 10) and dark < 8:
            color = dark + 8 * (ground == 10) + REVERSED
    return color
