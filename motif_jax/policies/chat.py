"""The command `motif-chat`: talks in the terminal with a policy that writes (docs/conversations.md)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from motif_jax.console import print_line, print_lines, write
from motif_jax.rewards.registry import to_number
from motif_jax.structs import UserError
from motif_jax.system.startup import keep_compiled_programs, run_program, say, set_up_process
from motif_jax.transcripts.imports import AGENT, WORLD

PROMPT = "> "


def command() -> int:
    """The console script; returns the exit status."""
    set_up_process()
    return run_program(main)


def main(argv: list[str] | None = None) -> int:
    """Answers each line of standard input; an empty line begins a new conversation. Returns 2 for a user's error."""
    parser = argparse.ArgumentParser("motif-chat", description="Talks with a policy of --stage=train_values.")
    parser.add_argument("workdir", help="of the training, or its `values`")
    parser.add_argument("--beta", default="4", help="factor of Q - V; 0: the policy without values (default: 4)")
    parser.add_argument("--max-tokens", default="64", help="the most tokens of a reply (default: 64)")
    parser.add_argument("--kind", default="sample", help="sample, greedy, beam or rerank (default: sample)")
    parser.add_argument("--system", default="", help="a system message, as conversations of the training began with")
    parser.add_argument("--which", default="last", help="checkpoint: its number, best, or last (default)")
    parser.add_argument("--seed", default=0, type=int, help="of the samples (default: 0)")
    chosen = parser.parse_args(argv)
    beta: Any = to_number(chosen.beta)
    most = int(chosen.max_tokens) if chosen.max_tokens.isdecimal() else chosen.max_tokens
    keep_compiled_programs(os.environ)
    from motif_jax.policies.writing import load_values  # loads JAX

    try:
        values = load_values(chosen.workdir, chosen.which, chosen.seed)
        beta = beta if beta == beta else chosen.beta  # NaN: refused as it was written
        talk(values, chosen.system, {"beta": beta, "max_tokens": most, "kind": chosen.kind})
    except UserError as error:
        say(error)
        return 2
    except KeyboardInterrupt:
        print_line("")
    return 0


def talk(values: Any, system: str, decoding: dict[str, Any]) -> None:
    """Reads what the other side says, line by line, and prints a reply to each, until the input ends."""
    begun = [{"role": "system", "content": system}] if system else []
    messages = [*begun]
    show_prompt()
    for line in sys.stdin:
        text = line.strip()
        if text:
            messages.append({"role": WORLD, "content": text})
            reply = values.reply(messages, **decoding)
            messages.append({"role": AGENT, "content": reply})
            print_lines(reply)
        else:
            messages = [*begun]
        show_prompt()


def show_prompt() -> None:
    """Shows that a line is awaited, where somebody types."""
    if sys.stdin.isatty():
        write(PROMPT)


if __name__ == "__main__":
    sys.exit(command())
