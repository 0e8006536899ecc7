"""The loop: proposals, trials on recorded episodes, revisions; everything is kept, and a killed run goes on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.backends import OpenBackend, is_by_rules, server_key
from motif_jax.audit.judge import JudgePlan
from motif_jax.config.table import shown
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import make_world
from motif_jax.files import write_whole
from motif_jax.rewards.choice import BEST
from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import Readable, find_readable
from motif_jax.rewards.code.tokens import MOST_BYTES, ProgramError
from motif_jax.stages.audit.asking import ask
from motif_jax.stages.write_reward.evidence import (
    Pairs,
    Recorded,
    choose_pairs,
    record,
    shown_moments,
    texts_of_episodes,
)
from motif_jax.stages.write_reward.findings import Tried, examine, tell
from motif_jax.stages.write_reward.learnt import learnt_returns
from motif_jax.stages.write_reward.names import RECORD, SCRIPTED, STAGE_NAME
from motif_jax.stages.write_reward.training import describe, train
from motif_jax.stages.write_reward.writers import SHOWN, Attempt, Brief, ModelWriter, ScriptedWriter, Writer
from motif_jax.structs import UserError
from motif_jax.system.files import write_config, write_json
from motif_jax.system.foreign import read_bytes
from motif_jax.system.http import HttpClient

KEPT = 2_000  # characters of a text with an error
LIKED = 8  # captions of preferred episodes that the writer is told


def write(config: ConfigDict, folder: Path, open_backend: OpenBackend) -> None:
    """Writes programs, tries them, and keeps the best as `best.reward`."""
    section, world = config.write_reward, make_world(config.env.to_dict())
    readable = find_readable(world)
    write_config(folder, config)
    recorded = record(config, readable)
    texts = texts_of_episodes(recorded, whole=is_by_rules(config.annotate))
    choosing, telling = judge(config, recorded, texts, folder / "answers.json", open_backend)
    print_line(
        f"{STAGE_NAME}: {recorded.num_episodes:,} recorded episodes; the judge has verdicts about "
        f"{int((~np.isnan(choosing.judged)).sum())} of {len(choosing.judged)} pairs"
    )
    goal = section.goal or texts_of(config.env, config.annotate.lexicon).goals.get(config.annotate.goal, "").strip()
    brief = Brief(goal, world.about, readable, shown_moments(recorded, SHOWN), liked_captions(recorded, choosing))
    learnt = learnt_returns(config, folder.parent, recorded, world)
    writer = open_writer(config)
    try:
        best, rounds = run_rounds(config, folder, writer, brief, recorded, choosing, texts, learnt)
    finally:
        writer.close()
    told = telling.agreement(recorded.returns(recorded.pay(best.program)))
    write_json(folder / RECORD, {
        "goal": goal, "writer": section.writer, "model": config.annotate.model, "world": config.env.world,
        "judge": config.annotate.backend,
        "rounds": rounds, "best": {"program": best.program.text, "findings": best.findings, **best.figures},
        "agreement_on_others": None if np.isnan(told) else told, "episodes": recorded.num_episodes,
        "pairs": [len(choosing.judged), len(telling.judged)],
    })  # fmt: skip
    said = f"written by {section.writer}; agrees with the judge about {told:.0%} of {len(telling.judged)} pairs"
    heading = f"# {' '.join(goal.split())}\n# {said}\n"
    text = "".join(character if character.isascii() else "?" for character in heading) + best.program.text + "\n"
    write_whole(folder / BEST, lambda file: file.write(text.encode()))
    print_line(f"{STAGE_NAME}: {shown(' '.join(best.program.text.split()))}")
    for finding in best.findings:
        print_line(f"{STAGE_NAME}: found: {finding}")
    print_line(
        f"{STAGE_NAME}: it agrees with the judge about {best.agreement:.0%} of the pairs that chose it and {told:.0%} "
        f"of {len(telling.judged)} others; --config.policy.sources=code:{STAGE_NAME}"
    )


def open_writer(config: ConfigDict) -> Writer:
    """The writer that the config names."""
    if config.write_reward.writer == SCRIPTED:
        return ScriptedWriter()
    server, sampling = config.annotate.server, config.annotate.sampling
    client = HttpClient(
        server.url, "--config.annotate.server.url", server.timeout_s, server.patience_s, server_key(server),
        "--config.annotate.server.key_variable",
    )  # fmt: skip
    return ModelWriter(client, config.annotate.model, sampling.max_tokens, max(sampling.temperature, 0.7))


def judge(
    config: ConfigDict, recorded: Recorded, texts: Sequence[str], file: Path, open_backend: OpenBackend
) -> tuple[Pairs, Pairs]:
    """Asks about pairs of episodes in both orders; the first half chooses programs, the second tells of the best."""
    pairs = choose_pairs(recorded, config.write_reward.pairs, config.seed)
    plan = JudgePlan()
    plan.wholes = plan.both((texts[first], texts[second]) for first, second in pairs.tolist())
    judged = ask(config, plan, file, open_backend, STAGE_NAME).mean(plan.wholes)
    half = len(pairs) // 2
    return Pairs(pairs[:half], judged[:half]), Pairs(pairs[half:], judged[half:])


def liked_captions(recorded: Recorded, pairs: Pairs) -> list[str]:
    """Captions that a program can look for, by how much more often preferred episodes show them."""
    more: dict[str, int] = {}
    for (first, second), judged in zip(pairs.episodes.tolist(), pairs.judged.tolist(), strict=True):
        if np.isnan(judged) or judged == 0.5:
            continue
        better, worse = (second, first) if judged > 0.5 else (first, second)
        for episode, sign in ((better, 1), (worse, -1)):
            for caption in {*recorded.captions[episode]}:
                more[caption] = more.get(caption, 0) + sign
    plain = [caption for caption in more if caption.isascii() and caption.isprintable() and '"' not in caption]
    plain = [caption for caption in plain if "\\" not in caption and 0 < len(caption) <= 80]
    return sorted((caption for caption in plain if more[caption] > 0), key=lambda one: -more[one])[:LIKED]


def run_rounds(
    config: ConfigDict, folder: Path, writer: Writer, brief: Brief, recorded: Recorded, pairs: Pairs,
    texts: Sequence[str], learnt: np.ndarray | None,
) -> tuple[Tried, list[list[dict[str, Any]]]]:  # fmt: skip
    """All rounds; the best program, and what was tried in each round."""
    section, best = config.write_reward, None
    rounds: list[list[dict[str, Any]]] = []
    earlier: list[Attempt] = []
    trained: dict[str, dict[str, list[float]]] = {}  # figures of the agent and of random play, by program
    for number in range(1 + section.revisions):
        tried, rows = [], []
        brief = brief._replace(tried=[row["program"] for earlier_rows in rounds for row in earlier_rows])
        for proposal in range(section.proposals):
            file = folder / f"round-{number}" / f"program-{proposal}.reward"
            text, problem = propose(writer, brief, earlier, proposal, section.attempts, file)
            row: dict[str, Any] = {"program": text, "error": problem}
            if not problem:
                one = examine(check(text, brief.readable), recorded, pairs, brief.readable, learnt)
                tried.append(one)
                row |= {"findings": one.findings, **one.figures}
            rows.append(row)
        rounds.append(rows)
        best = max([*([best] if best else []), *tried], key=lambda one: one.rank, default=None)
        if best is None:
            raise UserError(
                f"none of {section.proposals} programs could be read after {section.attempts} attempts each; the last "
                f"error: {rows[-1]['error']} (--config.write_reward.writer, .attempts)"
            )
        print_line(f"{STAGE_NAME}: round {number}: {len(tried)} of {section.proposals} programs can be read; the best "
                   f"agrees with the judge about {best.agreement:.0%} of the pairs")  # fmt: skip
        said = tell(best, recorded, pairs, list(texts))
        if section.train_for_env_steps and number < section.revisions:
            if best.program.text not in trained:
                trained[best.program.text] = train(config, best.program, folder / f"round-{number}" / "training")
            said += f"\n- {describe(trained[best.program.text], section.train_for_env_steps)}"
        earlier = [Attempt(best.program.text, said)]
    for row in itertools.chain(*rounds):
        if (figures := trained.get(row["program"])) and not row["error"]:
            row["trained"] = figures
    assert best is not None
    return best, rounds


def propose(
    writer: Writer, brief: Brief, earlier: Sequence[Attempt], number: int, attempts: int, file: Path
) -> tuple[str, str]:
    """A program that can be read, and "", or the last text and its error. One that a killed run had is in the file."""
    text = kept(file)
    if text and not problem_of(text, brief.readable):
        return text, ""
    tries, text, problem = list(earlier), "", ""
    for _ in range(attempts):
        text = clean_text(writer.propose(brief, tries, number))
        problem = problem_of(text, brief.readable)
        if not problem:
            write_whole(file, lambda out, text=text: out.write(text.encode()))  # type: ignore[misc]
            return text, ""
        tries = [*earlier, Attempt(text, f"- it cannot be read: {problem}")]
    return text, problem


def kept(file: Path) -> str:
    """The text of a killed run's file; "" if there is none that can be read."""
    try:
        return read_bytes(file, MOST_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def problem_of(text: str, readable: Readable) -> str:
    """Why a program cannot be used; "" if it can."""
    try:
        check(text, readable)
    except ProgramError as error:
        return str(error)
    return ""


def clean_text(text: str) -> str:
    """A text of a model, short and without control characters."""
    return "\n".join(clean(line, KEPT) for line in text[:KEPT].splitlines())
