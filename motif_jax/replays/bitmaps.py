"""Decodes the pictures of a replay, which may come from an untrusted source."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 1024  # most pixels on a side


def open_picture(packed: bytes) -> Image:
    """Decodes a WebP picture; raises ValueError if it is damaged, of another format, or too large."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(packed), formats=["WEBP"]) as picture:
            if max(picture.size) > SIDE:
                raise ValueError(f"a picture of a replay has more than {SIDE} pixels on a side")
            return picture.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"a picture of a replay is damaged ({error})") from error


def paste(pixels: np.ndarray, packed: bytes, height: int) -> np.ndarray:
    """Draws a picture in the middle of the first `height` lines of pixels, as large as fits. [H, W, 3] uint8"""
    fitted = _fit(packed, pixels.shape[1], height)
    down, across = (height - fitted.shape[0]) // 2, (pixels.shape[1] - fitted.shape[1]) // 2
    pixels[down : down + fitted.shape[0], across : across + fitted.shape[1]] = fitted
    return pixels


@functools.lru_cache(maxsize=1)  # consecutive frames often have the same picture
def _fit(packed: bytes, width: int, height: int) -> np.ndarray:
    from PIL import Image

    picture = open_picture(packed)
    scale = min(width / picture.width, height / picture.height)
    size = max(round(scale * picture.width), 1), max(round(scale * picture.height), 1)
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.BILINEAR))
