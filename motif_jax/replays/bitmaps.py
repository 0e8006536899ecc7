"""Pictures of a replay as pixels. A replay may come from anywhere, so they are opened with care."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

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
