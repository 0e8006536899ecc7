"""Trains with TRL's GRPO, and prints how many tokens it writes per second from end to end: generation and updates."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

WARMUP = 2  # steps


class Clock(TrainerCallback):
    """Measures whole steps after the warm-up; ends the training after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.written, self.rate = seconds, 0, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = time.perf_counter()
        if state.global_step <= WARMUP:
            self._start, self.written = now, 0
        elif now - self._start >= self._seconds:
            self.rate, control.should_training_stop = self.written / (now - self._start), True


def main(task: dict, folder: str) -> None:
    """Trains; files go to `folder`."""
    names = {f"t{number}": number for number in range(task["vocabulary"])}
    words = Tokenizer(models.WordLevel(names, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t1")
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=task["vocabulary"], n_positions=task["longest"], n_embd=task["width"], n_layer=task["layers"],
        n_head=task["heads"], bos_token_id=0, eos_token_id=1, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ))  # fmt: skip
    clock = Clock(task["seconds"])

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        clock.written += sum(map(len, completion_ids))
        return [float(row.count(5)) for row in completion_ids]

    config = GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_strategy="no",
        disable_tqdm=True, per_device_train_batch_size=task["games"], num_generations=task["group"],
        max_completion_length=task["letters"], generation_kwargs={"min_new_tokens": task["letters"]},
        learning_rate=task["learning_rate"], gradient_checkpointing=False, max_steps=10**6,
    )  # fmt: skip
    prompts = [" ".join(f"t{token}" for token in row) for row in task["prompts"]]
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokens, callbacks=[clock],
    )  # fmt: skip
    trainer.train()
    print(json.dumps({"rate": clock.rate}), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(json.loads(sys.argv[1]), made)
