"""What vendors say that their devices can do at best: dense matrix products, in TFLOP/s.

Figures of data sheets, without structured sparsity, at the largest power limit of the form factor; nobody measured them
here. "float32" is what JAX computes float32 products in by default on these devices: TF32 where it exists.
"""

from __future__ import annotations

import re

PEAKS: dict[str, dict[str, float]] = {  # by the first words of JAX's `device_kind`; the longest that fits counts
    "NVIDIA B200": {"bfloat16": 2250.0, "float32": 1125.0},
    "NVIDIA GH200": {"bfloat16": 989.0, "float32": 494.0},
    "NVIDIA H200": {"bfloat16": 989.0, "float32": 494.0},  # SXM
    "NVIDIA H200 NVL": {"bfloat16": 835.0, "float32": 417.0},
    "NVIDIA H100": {"bfloat16": 989.0, "float32": 494.0},  # SXM
    "NVIDIA H100 NVL": {"bfloat16": 835.0, "float32": 417.0},
    "NVIDIA H100 PCIe": {"bfloat16": 756.0, "float32": 378.0},
    "NVIDIA A100": {"bfloat16": 312.0, "float32": 156.0},
    "NVIDIA L40S": {"bfloat16": 362.0, "float32": 183.0},
    "NVIDIA L4": {"bfloat16": 121.0, "float32": 60.0},
    "NVIDIA GeForce RTX 4090": {"bfloat16": 165.0, "float32": 83.0},
    "NVIDIA GeForce RTX 3090": {"bfloat16": 71.0, "float32": 36.0},
    "Tesla V100": {"float32": 15.7},
    "Tesla T4": {"float32": 8.1},
}


def vendor_peak(device_kind: str, dtype: str) -> float | None:
    """FLOP/s of one device by its vendor; None for devices that the table does not have."""
    names = [name for name in PEAKS if re.match(rf"{re.escape(name)}\b", device_kind)]
    if not names:
        return None
    tera = PEAKS[max(names, key=len)].get(dtype)
    return tera and tera * 1e12
