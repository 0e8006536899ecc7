"""The loop: proposals, trials on recorded episodes, revisions; everything is kept, and a killed run goes on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.backends import OpenBackend, is_by_rules, opened, server_key
from motif_jax.audit.judge import JudgePlan
from motif_jax.config.table import shown
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import make_world
from motif_jax.files import write_whole
from motif_jax.pages.blocks import table, tiles
from motif_jax.pages.formats import esc
from motif_jax.rewards.choice import BEST
from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import Readable, find_readable
from motif_jax.rewards.code.tokens import MOST_BYTES, ProgramError
from motif_jax.run import Head, Run
from motif_jax.stages.audit.asking import ask
from motif_jax.stages.write_reward.evidence import (
    Pairs,
    Recorded,
    choose_pairs,
    ranges_of,
    record,
    shown_moments,
    texts_of_episodes,
    told_steps,
)
from motif_jax.stages.write_reward.findings import Tried, examine, tell
from motif_jax.stages.write_reward.learnt import learnt_returns
from motif_jax.stages.write_reward.section import MODEL, RECORD, SCRIPTED, STAGE_NAME, WriteConfig
from motif_jax.stages.write_reward.training import describe, train
from motif_jax.stages.write_reward.writers import SHOWN, Attempt, Brief, ModelWriter, ScriptedWriter, Writer
from motif_jax.structs import UserError
from motif_jax.system.foreign import read_bytes
from motif_jax.system.http import HttpClient

KEPT = 2_000  # characters of a text with an error
TITLE = "The written reward"  # of the report's part
HEAD = Head(subject="A reward,", aim="written as a program")  # on its first screen
WRITTEN_NODES = 32  # of a program by a model in this process; small ones do not come to an end by themselves
SHOWN_PROGRAMS = 200  # in the report
LONGEST_SHOWN = 500  # characters of a program in the table
LIKED = 8  # captions of preferred episodes that the writer is told


def write(config: WriteConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes programs, tries them, and keeps the best as `best.reward`. `open_backend` opens the judge."""
    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        section, world = config.write_reward, make_world(config.env)
        readable = find_readable(world)
        recorded = record(config, readable)
        texts = texts_of_episodes(recorded, whole=is_by_rules(config.annotate))
        choosing, telling = judge(config, recorded, texts, stage.path / "answers.json", open_backend)
        print_line(
            f"{STAGE_NAME}: {recorded.num_episodes:,} recorded episodes; the judge has verdicts about "
            f"{int((~np.isnan(choosing.judged)).sum())} of {len(choosing.judged)} pairs"
        )
        goals = texts_of(config.env, config.annotate.lexicon).goals
        goal = section.goal or goals.get(config.annotate.goal, "").strip()
        brief = Brief(goal, world.about, readable, shown_moments(recorded, SHOWN), liked_captions(recorded, choosing))
        if section.writer == MODEL:
            brief = brief._replace(ranges=ranges_of(recorded, readable), moments=told_steps(recorded, readable))
        learnt = learnt_returns(config, workdir, recorded, world)
        writer = open_writer(config, readable)
        try:
            best, rounds = run_rounds(config, stage.path, writer, brief, recorded, choosing, texts, learnt)
        finally:
            writer.close()
        told = telling.agreement(recorded.returns(recorded.pay(best.program)))
        is_found = best.is_reward
        results = {
            "goal": goal, "writer": section.writer, "model": config.annotate.model, "world": config.env["world"],
            "judge": config.annotate.backend,
            "rounds": rounds, "found": is_found,
            "best": {"program": best.program.text, "findings": best.findings, **best.figures},
            "agreement_on_others": told, "episodes": recorded.num_episodes,
            "pairs": [len(choosing.judged), len(telling.judged)],
        }  # fmt: skip
        stage.write("record", results)
        stage.section(TITLE, *blocks_of(results))
        stage.report(HEAD)
        if is_found:
            write_best(stage.path / BEST, goal, section.writer, best.program.text, told, len(telling.judged))
    if not is_found:
        print_line(
            f"{STAGE_NAME}: no reward was found: each program pays the same in every step, or agrees with the judge "
            f"about fewer than half of the pairs (--config.{STAGE_NAME}.proposals, .revisions, .writer)"
        )
        return
    print_line(f"{STAGE_NAME}: {shown(' '.join(best.program.text.split()))}")
    for finding in best.findings:
        print_line(f"{STAGE_NAME}: found: {finding}")
    print_line(
        f"{STAGE_NAME}: it agrees with the judge about {best.agreement:.0%} of the pairs that chose it and {told:.0%} "
        f"of {len(telling.judged)} others; --config.policy.sources=code:{STAGE_NAME}"
    )


def write_best(file: Path, goal: str, writer: str, program: str, told: float, others: int) -> None:
    """Writes the best program under a heading; last, as the stage is complete when it exists."""
    said = f"written by {writer}; agrees with the judge about {told:.0%} of {others} pairs"
    heading = f"# {' '.join(goal.split())}\n# {said}\n"
    text = "".join(character if character.isascii() else "?" for character in heading) + program + "\n"
    write_whole(file, lambda out: out.write(text.encode()))


def blocks_of(results: Mapping[str, Any]) -> list[str]:
    """The report's part, as HTML: the best program, and all that were tried."""
    best, (choosing, others) = results["best"], results["pairs"]
    scripted = results["writer"] == SCRIPTED
    by = "templates, which know nothing of games" if scripted else results["model"]
    words = [f"goal: {results['goal']}", f"written by {by}", f"judged by {results['judge']}"]
    trials = [(number, row) for number, rows in enumerate(results["rounds"]) for row in rows]
    figures = [
        (_percent(best["agreement"]), f"of the {choosing:,} pairs of episodes that chose: agrees with the judge"),
        (_percent(results["agreement_on_others"]), f"of {others:,} others"),
    ]
    if "learnt_disagrees" in best:
        figures.append((_percent(best["learnt_disagrees"]), "of them: the learnt reward prefers otherwise"))
    figures += [(f"{len(trials):,}", "programs tried"), (f"{results['episodes']:,}", "recorded episodes")]
    found = "".join(f"<li>{esc(one)}</li>" for one in best["findings"])
    rows = []
    for number, row in trials[:SHOWN_PROGRAMS]:
        findings = [*row.get("findings", ())]
        if trained := row.get("trained"):
            agent, random = trained["return"]
            findings.append(f"an agent that was trained with it returns {agent:.3g} (random play: {random:.3g})")
        program = f"<code>{esc(_cut(row['program']))}</code>"
        agreement = _percent(row.get("agreement"))
        rows.append([str(number), program, agreement, esc("; ".join(findings) or row["error"])])
    more = len(trials) - SHOWN_PROGRAMS
    return [
        f'<p class="soft">{esc(" · ".join(words))}</p>',
        "" if results["found"] else "<p>No reward was found; this program came closest.</p>",
        tiles(figures),
        f"<pre>{esc(best['program'])}</pre>",
        f"<p>Found on recorded episodes:</p><ul>{found}</ul>" if found else '<p class="soft">Nothing found.</p>',
        "<h3>All programs</h3>",
        table(("round", "program", "agrees", "found, or why it cannot be read"), rows, numbers=(0, 2)),
        f'<p class="soft">{more:,} more are in {esc(f"{STAGE_NAME}/{RECORD}")}.</p>' if more > 0 else "",
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None or np.isnan(share) else f"{share:.0%}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST_SHOWN else f"{flat[:LONGEST_SHOWN]} …"


def open_writer(config: WriteConfig, readable: Readable) -> Writer:
    """The writer that the config names."""
    if config.write_reward.writer == SCRIPTED:
        return ScriptedWriter()
    if config.write_reward.writer == MODEL:
        from motif_jax.rewards.code.recogniser import Grammar
        from motif_jax.stages.write_reward.guided import GuidedWriter  # loads JAX

        return GuidedWriter(config, Grammar(readable, WRITTEN_NODES, narrow=True))
    server, sampling = config.annotate.server, config.annotate.sampling
    client = HttpClient(
        server.url, "--config.annotate.server.url", server.timeout_s, server.patience_s, server_key(server),
        "--config.annotate.server.key_variable",
    )  # fmt: skip
    return ModelWriter(client, config.annotate.model, sampling.max_tokens, max(sampling.temperature, 0.7))


def judge(
    config: WriteConfig, recorded: Recorded, texts: Sequence[str], file: Path, open_backend: OpenBackend
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
    config: WriteConfig, folder: Path, writer: Writer, brief: Brief, recorded: Recorded, pairs: Pairs,
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
        if section.train_for_env_steps and number < section.revisions and best.is_reward:
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
