"""A chat model of a quarter of a million random weights, made on the spot: real enough for every part of vLLM."""

from __future__ import annotations

import itertools
from pathlib import Path

from nethack_texts import NETHACK
from small_dataset import EVENTS

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.prompts import make_prompt

LINES = [
    "You kill the newt! You see here a dagger. It's a wall. You descend the stairs. $ - 12 gold pieces.",
    '("best_description": 1) ("best_description": 2) ("best_description": None) (1) (2) (None)',
    "The player judges two short descriptions of NetHack: which of them is likelier to be progress, and why?",
    "system user assistant 0 1 2 None 0 1 2 (0) (1) (2)",
]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make(directory: Path) -> Path:
    """Writes weights, tokenizer and chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=524,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(LINES * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|end|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    # Random weights give a verdict some 1 % of the time. This adds 12 to the logits of the digits where one is due, for
    # the questions of the test, and leaves the differences between digits to chance.
    prompt = make_prompt(NETHACK, "score", "gold", "default")
    conversations = [
        [*prompt.messages(Question(first, second)), {"role": "assistant", "content": "("}]
        for first, second in itertools.permutations(EVENTS, 2)
    ]
    with torch.no_grad():
        states = []
        for messages in conversations:
            tokens = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
            tokens = tokenizer(tokens, return_tensors="pt", add_special_tokens=False).input_ids
            states.append(model.model(tokens).last_hidden_state[0, -1])
        push = torch.linalg.lstsq(torch.stack(states), torch.full((len(states), 1), 12.0), driver="gelsd").solution[
            :, 0
        ]
        for digit in ("0", "1", "2"):
            model.lm_head.weight[tokenizer.encode(digit)[0]] += push
    model.save_pretrained(directory)
    return directory
