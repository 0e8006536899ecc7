"""The values of the section `code_rewards` of the config. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Number, Text, Whole, value

SCRIPTED, MODEL, PLAIN = "scripted", "model", "plain"


@dataclass(frozen=True)
class CodeRewardsSection:
    """A reward that a language model writes as a program, by the stage write_reward."""

    writer: str = value(
        SCRIPTED,
        Text((SCRIPTED, "server", MODEL)),
        "scripted: templates over the goal's words; server: the model behind annotate.server; model: annotate.model in "
        "this process, which is held to the grammar",
        decides=True,
    )
    goal: str = value("", Text(longest=2000), "the goal in one sentence; empty: that of annotate.goal", decides=True)
    grammar: str = value(
        PLAIN,
        Text((PLAIN, "vllm", "llama.cpp")),
        "writer server: how it takes a grammar: vllm (0.12 or newer) in structured_outputs, llama.cpp in grammar; "
        "plain: not at all",
        decides=True,
    )
    texts: str = value(
        "recorded",
        Text(("recorded", "any")),
        "writer model: recorded: what it writes in quotes are words of a sentence, or whole sentences, of a recorded "
        "text, and no two of a program are parts of the same ones; any: it may be any text",
        decides=True,
    )
    proposals: int = value(4, Whole(1, 64), "programs per round", decides=True)
    revisions: int = value(
        2, Whole(0, 20), "further rounds, in which the writer sees the results of the previous one", decides=True
    )
    attempts: int = value(3, Whole(1, 20), "attempts per program; one with an error is asked for again")
    feedback: str = value(
        "diagnoses", Text(("diagnoses", "metrics")), "feedback to the writer on a program: findings with their moments "
        "and episodes, or figures alone", decides=True,
    )  # fmt: skip
    players: str = value("random", Text(longest=1000), "scripted players of the recorded episodes", decides=True)
    steps: int = value(20_000, Whole(100, 10**7), "recorded steps, and those of trained agents", decides=True)
    pairs: int = value(
        80,
        Whole(4, 10**5),
        "pairs of episodes for the judge, anew after a round with trainings: half to select programs, half to evaluate "
        "the best",
        decides=True,
    )
    minutes: float = value(
        0.0, Number(0, 1e6), "minutes of a start after which no further program, training or round begins; 0: no limit"
    )
    train_for_env_steps: int = value(
        0,
        Whole(0, 10**9),
        "steps of each short training: the best programs of a round train agents, first those that pay at other "
        "steps; their games are recorded, too, and the writer reads how the best of them played; 0: none",
        decides=True,
    )
    trainings: int = value(1, Whole(1, 64), "short trainings per round", decides=True)
    chosen_by: str = value(
        "success",
        Text(longest=200),
        "figures or behaviours of the trained agents by which a program is chosen, the first before the others; among "
        "equals, the judge chooses",
        decides=True,
    )

    @property
    def figures(self) -> list[str]:
        return [name.strip() for name in self.chosen_by.split(",")]
