"""GLAM on BabyAI-Text (arXiv 2302.02662): a language model is the policy, and learns by playing (PPO).

    python -m motif_jax.launch --config=configs/glam.py:goto_local --workdir=runs/glam \\
        --config.policy.language.model=/models/flan-t5-small

The argument is a level: goto_local, goto_small, mixed_train, mixed_test, pick_up_seq_go_to, pick_up_then_go_to,
go_to_after_pick_up, pick_up_seq_pick_up, go_to_french, or any of MiniGrid's by its name. After it may stand a
variant of the network: action_head, embeddings (only these are pretrained), embeddings_action_head, random_action_head;
a baseline: symbolic, a small network (FiLM) that sees the grid and the mission, or drrn, one that reads prompts and
names of actions and learns by Q-learning; and reference, for the published system, defects included, where numbers
depend on them.

Without a model's directory, a new small network learns from nothing. configs/glam_quickstart.py needs no download.
docs/glam.md explains the rest. The published runs take 1,500,000 steps with a model of 780 million parameters.
"""

from ml_collections import ConfigDict

from motif_jax.config.table import Text
from motif_jax.experiment import defaults
from motif_jax.structs import UserError

LEVELS = {
    "goto_local": "GoToLocal",
    "goto_small": "GoToLocalS5N2",  # a room of three by three cells, with two things
    "mixed_train": "MixedTrainLocal",
    "mixed_test": "MixedTestLocal",
    "pick_up_seq_go_to": "PickUpSeqGoToLocal",
    "pick_up_then_go_to": "PickUpThenGoToLocal",
    "go_to_after_pick_up": "GoToAfterPickUpLocal",
    "pick_up_seq_pick_up": "PickUpSeqPickUpLocal",
    "go_to_french": "GoToFrench",
}
VARIANTS = {  # weights, head
    "action_head": ("pretrained", "action"),
    "embeddings": ("embeddings", "score"),
    "embeddings_action_head": ("embeddings", "action"),
    "random_action_head": ("random", "action"),
}
WORDS = (*VARIANTS, "symbolic", "drrn", "reference")


def get_config(argument: str = "goto_local") -> ConfigDict:
    """The whole experiment, for a level, and optionally a variant and `reference`."""
    level, *words = argument.split(",")
    for word in words:
        Text(WORDS).check("variant", "--config", word)
    if {"symbolic", "drrn"} <= {*words}:
        raise UserError("symbolic and drrn are two baselines: choose one (--config)")
    reference = "reference" in words

    config = defaults()
    config.stages = ("train_policy", "evaluate", "report")
    config.env.world = "babyai"
    config.env.babyai.level = LEVELS.get(level, level)
    config.env.babyai.reference_families = reference
    config.env.babyai.reference_french = reference

    policy = config.policy
    policy.network = "language"
    policy.sources = ""
    policy.intrinsic_coefficient = 0.0  # the game's reward alone: at most 1 for an episode
    policy.extrinsic_coefficient = 20.0 if reference else 1.0
    policy.reward_scale = 1.0
    policy.num_workers = 1  # more of them play faster, and then no run is the same twice
    policy.synchronous = True
    policy.games_per_worker = 32
    policy.groups = 1
    policy.rollout_length = 40
    policy.warmup_steps = 0  # no random actions before the agent's
    policy.algorithm = "ppo"  # with the hyperparameters of the paper, except where `reference` says otherwise
    policy.batch_size = 1280
    policy.num_epochs = 4
    policy.num_minibatches = 20
    policy.discount = 0.99
    policy.gae_lambda = 0.99 if reference else 0.95
    policy.learning_rate = 1e-6 if reference else 1e-5  # of pretrained models
    policy.adam_eps = 1e-5
    policy.max_gradient_norm = 0.5
    policy.clip_ratio = 0.2
    policy.clip_value = 0.2 if reference else 0.0
    policy.value_coefficient = 0.5
    policy.exploration_coefficient = 0.01
    policy.normalise_advantages = not reference
    policy.bootstrap = "never" if reference else "explicit"
    policy.train_for_env_steps = 1_500_000
    policy.save_every_steps = 100_000
    policy.milestone_every_steps = 500_000
    language = policy.language
    language.formula = "raw_logits" if reference else "sum"
    language.hidden = 1024
    language.reference_heads = reference
    for word in words:
        if word in VARIANTS:
            language.weights, language.head = VARIANTS[word]
    if "symbolic" in words:
        policy.network = "film"
        policy.learning_rate = 1e-4
        policy.num_minibatches = 4  # of whole rollouts, as this network has a memory
    if "drrn" in words:
        policy.network = "drrn"
        policy.algorithm = "q_learning"
        policy.num_devices = 1
        policy.extrinsic_coefficient = 20.0  # actions are sampled from the softmax of Q: this decides how boldly
        policy.discount = 0.9
        policy.learning_rate = 1e-4
        policy.adam_eps = 1e-8
        policy.max_gradient_norm = 5.0
        policy.rollout_length = 4
        policy.batch_size = 128
        policy.num_epochs = 1
        policy.num_minibatches = 1
    config.evaluate.beside = "random,bot"
    config.evaluate.replays = "toughest,best,worst"  # the best is over after a step or two
    return config
