"""Does a language model's reward help at equal steps? One arm of docs/results/headline.md; run.py runs all of them.

    python -m motif_jax.launch --config=examples/headline/config.py:model_score --workdir=runs/model_score \
        --config.annotate.model=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf

The argument is the arm. Each has the values of configs/quickstart.py, with games as long as in the paper, for 20
million steps; they differ in the rewards alone, whose coefficients are equal where an arm has two, as in the paper.
Sizes are those for two cores on every machine, so that the policy lag is the same.

Time: 25 to 40 minutes on two quiet cores with an engine built for this machine (docs/speed.md). Expected: not measured.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.structs import UserError
from motif_jax.system.sizing import size_run

PROGRAM = "examples/headline/puffer.reward"
GAME = {"extrinsic_coefficient": 1.0}  # scaled by 0.1, as the program is
LEARNT = {"sources": "learnt", "intrinsic_coefficient": 1.0}
ARMS = {  # its rewards in words; the judge that a reward is learnt from; values of the policy
    "score": ("the score", "", GAME),
    "model": ("the model's ratings", "model", LEARNT),
    "model_score": ("the model's ratings and the score", "model", LEARNT | GAME),
    "rules": ("the rules' labels", "rules", LEARNT),
    "rules_score": ("the rules' labels and the score", "rules", LEARNT | GAME),
    "program": ("experience, gold, depth and new squares", "", {"sources": f"code:{PROGRAM}:0.1,explore:0.02"}),
}
JUDGES = {"": {}, "rules": {"backend": "lexicon"}, "model": {"backend": "model", "mode": "rate"}}


def get_config(arm: str = "score") -> ConfigDict:
    """The experiment of one arm."""
    if arm not in ARMS:
        raise UserError(f"unknown arm {arm!r}: choose from {', '.join(ARMS)} (--config)")
    _, judge, rewards = ARMS[arm]
    quickstart = Path(__file__).parents[2] / "configs/quickstart.py"
    config = runpy.run_path(str(quickstart))["get_config"]("score")
    if not judge:
        config.stages = ("train_policy", "evaluate", "report")
    config.env.max_episode_steps = 5000  # in games of 1,000 steps, hunger hardly matters
    config.annotate.update(JUDGES[judge])
    config.policy.update(size_run(2, None)._asdict())  # which wait for the learner: samples are one or two updates old
    config.policy.update({"sources": "", "extrinsic_coefficient": 0.0, "intrinsic_coefficient": 0.0} | rewards)
    config.policy.train_for_env_steps = 20_000_000
    config.policy.train_for_seconds = 0.0
    config.policy.save_every_s = 180.0
    config.policy.milestone_every_steps = 1_000_000  # checkpoints that are evaluated stay
    config.policy.keep_checkpoints = 2
    config.policy.hang_timeout_s = config.evaluate.hang_timeout_s = 300.0  # the machine may be busy with other work
    config.policy.tensorboard = config.reward.tensorboard = False
    config.evaluate.episodes = 200
    config.evaluate.replays = "best"
    config.evaluate.num_workers = 2
    return config
