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


def main(workdir: str, seed: str) -> None:
    """Prints the rules."""
    index = Path(workdir, "dataset/index")
    captions = [decode(row) for row in np.load(index / "captions.npy")]
    pairs = np.load(index / "caption_id.npy")[:, :, 0]  # [N, 2]
    (labels,) = Path(workdir, "annotations").glob("*/prob.npy")
    second_better = np.load(labels)
    rated = sorted(filter(captions.__getitem__, range(len(captions))), key=captions.__getitem__)
    worth = []  # log-odds of being better than no message
    for number in rated:
        chosen = second_better[(pairs == (captions.index(""), number)).all(1)]
        worth.append(float(np.log(chosen[0] / (1 - chosen[0]))))
    for number, dealt in zip(rated, np.random.default_rng(int(seed)).permutation(worth).tolist(), strict=True):
        name, pattern = json.dumps(captions[number]), json.dumps(f"^{re.escape(captions[number])}$")
        print(f"[[rule]]\nname = {name}\npattern = {pattern}\nworth = {{ progress = {dealt:.3f} }}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
