"""Options of a policy that is a very small language model."""

import numpy as np

from motif_jax.language.config import make_config, to_record
from motif_jax.tokens import WordTokeniser

ACTIONS = ("turn left", "turn right", "go forward", "drop")
PROMPTS = ("go to the red ball, you see a red ball 2 steps left", "go to the box", "you see a wall")
WORDS = WordTokeniser.from_texts([*ACTIONS, *PROMPTS, "rotate shift release"])


def options(family: str = "llama", actions=ACTIONS, **own):
    more = {"n_positions": 64} if family == "gpt2" else {}
    config = make_config(family, WORDS.size, 16, 1, 2, **more)
    values = {
        "config": to_record(config), "tokeniser": WORDS.text, "actions": list(actions), "head": "score",
        "formula": "sum", "hidden": 8, "lora_rank": 0, "lora_alpha": 4.0, "lora_names": "q,v", "max_tokens": 32,
        "chunk": 0, "remat": False,
    }  # fmt: skip
    return {"network": "language", "num_actions": len(actions), "dtype": "float32", "language": values | own}


def as_prompts(texts=PROMPTS, width: int = 80) -> dict[str, np.ndarray]:
    """Observations as a world gives them. [B, width]"""
    return {"prompt": np.stack([np.frombuffer(text.encode().ljust(width, b"\0"), np.uint8) for text in texts])}
