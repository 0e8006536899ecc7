"""Run by TRL's Python: one step of SFT and of DPO on files of `write_trl`; prints which texts SFT learns from.

pip install torch==2.13.0 trl
TRL_PYTHON=$(which python) bash launch/test.sh tests/transcripts/trl_test.py
"""

import json
import sys
from pathlib import Path

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

FOLDER = Path(sys.argv[1])
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "user", "assistant", ":", "crane", "abide", "zesty", "hello", "other"]
TEMPLATE = (
    "{% for message in messages %}{{ message.role }} : {{ message.content }} </s> {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


def tokeniser():
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = TEMPLATE
    return made


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                        num_attention_heads=2, pad_token_id=0, eos_token_id=2))  # fmt: skip


def options(kind, name):
    return kind(output_dir=str(FOLDER / name), max_steps=1, per_device_train_batch_size=8, report_to="none",
                use_cpu=True, bf16=False, gradient_checkpointing=False)  # fmt: skip


def data(form):
    return load_dataset(
        "json", data_files=str(FOLDER / f"{form}.jsonl"), split="train", cache_dir=str(FOLDER / "cache")
    )


for form in ("messages", "turns"):
    trainer = SFTTrainer(model(), args=options(SFTConfig, form), train_dataset=data(form), processing_class=tokeniser())
    if form == "turns":
        labels = next(iter(trainer.get_train_dataloader()))["labels"]
        learnt = sorted(WORDS[token] for token in labels.flatten().tolist() if token >= WORDS.index("crane"))
    trainer.train()
DPOTrainer(model(), model(), args=options(DPOConfig, "dpo"), train_dataset=data("preferences"),
           processing_class=tokeniser()).train()  # fmt: skip
print(json.dumps({"learnt by turns": learnt}))
