"""Deals the ratings of a run's captions to other captions at random, as rules: labels that say nothing of the sentence.

    python examples/garden/shuffle.py runs/garden 1 > shuffled.toml    # a workdir, and a seed

A control: --config.annotate.backend=lexicon --config.annotate.goal=defaultgoal --config.annotate.lexicon=shuffled.toml
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

from motif_jax.captions import decode


def ratings(workdir: str | Path) -> dict[str, float]:
    """The log-odds of each caption of being better than no message, from the labels of a workdir."""
    index = Path(workdir, "dataset/index")
    captions = [decode(row) for row in np.load(index / "captions.npy")]
    pairs = np.load(index / "caption_id.npy")[:, :, 0]  # [N, 2]
    (labels,) = Path(workdir, "annotations").glob("*/prob.npy")
    second_better, worth = np.load(labels), {}
    for number, caption in enumerate(captions):
        chosen = second_better[(pairs == (captions.index(""), number)).all(1)]
        if caption and len(chosen):
            worth[caption] = float(np.log(chosen[0] / (1 - chosen[0])))
    return worth


def main(workdir: str, seed: str) -> None:
    """Prints the rules."""
    captions, worth = zip(*sorted(ratings(workdir).items()), strict=True)
    for caption, dealt in zip(captions, np.random.default_rng(int(seed)).permutation(worth).tolist(), strict=True):
        name, pattern = json.dumps(caption), json.dumps(f"^{re.escape(caption)}$")
        print(f"[[rule]]\nname = {name}\npattern = {pattern}\nworth = {{ progress = {dealt:.3f} }}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
