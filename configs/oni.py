"""ONI on NetHack (arXiv 2410.23022), at the published size: the reward is learnt online, while the agent trains.

    python -m motif_jax.launch --config=configs/oni.py:score,retrieval --workdir=runs/oni-published

The argument is a task and a kind of reward. Tasks: score, oracle, staircase_lvl3, staircase_lvl4 and the others of
motif.py, with the 28 extended actions; and reward_free, which is score without the game's reward. Kinds: retrieval,
classification, ranking, those of plugins (words); none, for the game's reward alone.
`:score,retrieval,reference` reproduces the published system, including its defects if they change numbers.

The judge is the lexicon on a local server, so downloads are not needed. --config.annotate.backend=server and
--config.annotate.server.url select a language model instead (docs/oni.md). Training takes two billion steps, as
published: use a GPU and many cores, or a smaller --config.policy.train_for_env_steps. Expected: not measured at this
size; oni_quickstart.py is.
"""

import difflib
import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.rewards.section import KINDS as OF_SOURCE
from motif_jax.structs import UserError

KINDS = (*OF_SOURCE, "none")
REWARD_FREE = "reward_free"
# The release's example has 0.4, for retrieval on the score; other values were not published. Ranking has the
# coefficient of Motif's, as its published scores are not limited to 1.
COEFFICIENTS = {"ranking": 0.1}  # 0.4 for the others


def get_config(argument: str = "score,retrieval") -> ConfigDict:
    """`motif.py` with another source of rewards, for a task, a kind, and optionally `reference`."""
    task, *words = argument.split(",")
    for word in words:
        if word not in (*KINDS, "reference"):
            near = difflib.get_close_matches(word, KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(KINDS)}, and reference"
            raise UserError(f"unknown kind of reward {word!r} after the task {task!r} (--config): {hint}")
    kinds = [word for word in words if word in KINDS] or ["retrieval"]
    switches = [word for word in words if word not in KINDS]
    if len(kinds) > 1 or (kinds == ["none"] and task == REWARD_FREE):
        raise UserError(f"{argument!r} must have one kind of reward, of {', '.join(KINDS)} (--config)")
    switches = ["score" if task == REWARD_FREE else task, *switches]
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](",".join(switches))
    (kind,) = kinds
    config.stages = ("train_policy", "evaluate", "report")  # the reward is learnt in train_policy
    config.env.actions = "extended"  # the 28 of ONI
    config.env.reference_extended = "reference" in switches
    config.annotate.backend = "judge"  # without downloads
    if "reference" in switches:
        config.annotate.sampling.top_p = 1.0  # ONI's requests set only a temperature and a length
    config.policy.sources = "" if kind == "none" else f"online:{COEFFICIENTS.get(kind, 0.4)}"
    config.policy.intrinsic_coefficient = 0.0  # there is no reward from train_reward
    if kind != "none":
        config.policy.online.kind = kind
    if task == REWARD_FREE:
        config.policy.extrinsic_coefficient = 0.0
    return config
