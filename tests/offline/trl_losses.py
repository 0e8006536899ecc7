"""TRL's loss of GRPO on given log-probabilities; runs in TRL's own environment (launch/peers/trl.txt).

The arguments are a file of arrays, and the cases as JSON: `GRPOConfig` values. It prints their losses as JSON.
"""

import json
import sys
import tempfile

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


def loss_of(case, arrays, folder):
    """The loss with a trainer of the case, whose model is replaced by the given log-probabilities."""
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[EOS]": 1, "a": 2}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", eos_token="[EOS]")
    sizes = {"vocab_size": 3, "n_positions": 64, "n_embd": 4, "n_layer": 1, "n_head": 1}
    GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1, pad_token_id=0)).save_pretrained(folder)
    rows, length = arrays["mask"].shape
    config = GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, report_to="none", per_device_train_batch_size=rows,
        num_generations=rows, **case,
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": ["a"] * rows})
    trainer = GRPOTrainer(
        model=folder, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=config,
        train_dataset=prompts, processing_class=tokens,
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    one = {name: torch.tensor(array) for name, array in arrays.items()}
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (one["now"], torch.zeros(rows, length), None)
    loss = trainer._compute_loss(trainer.model, {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.long), "prompt_mask": torch.ones(rows, 1),
        "completion_ids": torch.zeros(rows, length, dtype=torch.long), "completion_mask": one["mask"],
        "advantages": one["advantage"], "old_per_token_logps": one["written"], "ref_per_token_logps": one["start"],
        "num_items_in_batch": one["mask"].sum(),
    })  # fmt: skip
    return float(loss)


with tempfile.TemporaryDirectory() as made:
    file = np.load(sys.argv[1])
    given = {name: file[name] for name in file.files}
    print(json.dumps([loss_of(case, given, made) for case in json.loads(sys.argv[2])]))
