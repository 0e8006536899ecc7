"""Pictures of a replay as pixels. A replay may come from anywhere, so they are opened with care."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 1024  # pixels that a side has at most


def open_picture(packed: bytes) -> Image:
    """The pixels of a picture in WebP; raises ValueError if it is damaged, of another format, or too large."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(packed), formats=["WEBP"]) as picture:
            if max(picture.size) > SIDE:
                raise ValueError(f"a picture of a replay has more than {SIDE} pixels on a side")
            return picture.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"a picture of a replay is damaged ({error})") from error


def paste(pixels: np.ndarray, packed: bytes, height: int) -> np.ndarray:
    """Pixels with a picture in the middle of their first `height` lines, as large as fits. [H, W, 3] uint8"""
    fitted = _fit(packed, pixels.shape[1], height)
    down, across = (height - fitted.shape[0]) // 2, (pixels.shape[1] - fitted.shape[1]) // 2
    pixels[down : down + fitted.shape[0], across : across + fitted.shape[1]] = fitted
    return pixels


@functools.lru_cache(maxsize=1)  # most steps of some games change nothing
def _fit(packed: bytes, width: int, height: int) -> np.ndarray:
    from PIL import Image

    picture = open_picture(packed)
    scale = min(width / picture.width, height / picture.height)
    size = max(round(scale * picture.width), 1), max(round(scale * picture.height), 1)
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.BILINEAR))
