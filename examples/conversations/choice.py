"""Can beta and checkpoint be chosen without a simulator? On Wordle, where games tell what is best.

    python examples/conversations/choice.py runs/choice  # trained as docs/results/ilql.md says; prints its tables

For each seed, beta and checkpoint it plays games, which is the truth, and reads the recorded games that training held
out, which is all that chats have; HOME/seed-S/choice.json keeps both. With rho, the probability of a recorded text by
the steered policy divided by the clone's, and R, the return of a recorded game, the estimates of a policy's return are

    game        sum of w R / sum of w, where w is the product of rho over the game
    game_low    the lower bound of it: the 2.5 % quantile over resampled games
    rewards     each reward is weighted by the product up to it, divided by its mean over the games
    robust      doubly robust: the same with r - Q in place of r, plus the mean of Q under the steered policy
    text        by how much one text of the steered policy, the others as recorded, raises R; the sum over the texts

and `sure` is the effective number of games, (sum of w)^2 / sum of w^2, as a share of them. `rankings`: the checkpoint
whose sums of Q - V order the recorded games best by their returns.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.envs.world import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.language.model import as_functions
from motif_jax.offline.update import next_tokens
from motif_jax.offline.values import ShiftArguments, apply_head, taken, target_q
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueWriter, list_values, play_games, read_values
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import Transcripts

BETAS, GAMES = (0, 1, 4, 8, 16), 512
FIXED = 4  # the default of load_values and motif-chat
CHECKPOINTS = (300, -1)  # updates; the last


def sure(share):
    """Chooses by `game` among the policies for which this share of the games counts."""
    return lambda cell: cell["game"] if cell["sure"] >= share else -np.inf


def fixed(name):
    """Chooses the checkpoint by an estimate, for a fixed beta."""
    return lambda cell: cell[name] if cell["beta"] == FIXED else -np.inf


RULES = {  # a name, and what it maximises, of a checkpoint and beta
    **{name: lambda cell, name=name: cell[name] for name in ("game", "game_low", "rewards", "robust", "text")},
    "game, where a tenth of the games counts": sure(0.1),
    "game, where a fifth counts": sure(0.2),
    "game, where half counts": sure(0.5),
    f"beta {FIXED}, checkpoint by game": fixed("game"),
    f"beta {FIXED}, checkpoint by rankings": fixed("ranked"),
    f"beta {FIXED}, last checkpoint": fixed("checkpoint"),
}


# ---- the estimates, from arrays over the agent's tokens, [games, tokens] each; zero after a game's end


def weights(log_ratio):
    """The products of ratios up to each token, in proportion, over the games. [games, tokens]"""
    total = np.cumsum(log_ratio, 1)
    return np.exp(total - total.max(0))


def estimates(ratio, arrays, mean_q, discount):
    """All estimates of a policy. `ratio`: logarithms; `mean_q`: of Q under the policy."""
    reward, text = arrays["reward"], arrays["text"]
    weight, returns = weights(ratio), reward.sum(1)
    last = weight[:, -1]
    drawn = np.random.default_rng(0).integers(len(last), size=(1000, len(last)))
    share = weight / weight.mean(0)
    before = np.pad(share, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1]
    rest = arrays["mask"] * discount ** np.arange(ratio.shape[1])
    gained = 0.0
    for number in range(text.max() + 1):
        has = (text == number).any(1)
        one, to_go = (np.where(mask, array, 0)[has].sum(1) for mask, array in
                      ((text == number, ratio), (text >= number, reward)))  # fmt: skip
        one = np.exp(one - one.max())
        gained += has.mean() * ((one * to_go).sum() / one.sum() - to_go.mean())
    return {
        "game": (last * returns).sum() / last.sum(),
        "game_low": np.quantile((last * returns)[drawn].sum(1) / last[drawn].sum(1), 0.025),
        "rewards": (share * reward).sum(1).mean(),
        "robust": (rest * (share * (reward - arrays["q"]) + before * mean_q)).sum(1).mean(),
        "text": returns.mean() + gained, "sure": last.sum() ** 2 / (last**2).sum() / len(last),
    }  # fmt: skip


def ranked(arrays):
    """Of pairs of games with different returns, the share in which the better one has the larger sum of Q - V."""
    total, returns = (arrays["q"] - arrays["v"]).sum(1), arrays["reward"].sum(1)
    better = returns[:, None] > returns
    return ((total[:, None] > total) & better).sum() / better.sum()


# ---- the measurement


def held_out(workdir, model, metadata):
    """The recorded games that training did not learn from, one per row."""
    store, config = Transcripts(workdir / "transcripts"), metadata["config"]
    order = np.random.default_rng((config["seed"], 1)).permutation(len(store))  # as stages/offline.py chooses them
    held = np.sort(order[: round(len(store) * config["train_values"]["validation_share"])])
    renderer = Renderer(store.turns(), model.tokeniser, TEMPLATES[config["transcripts"]["template"]])
    return renderer.rows(held, int(renderer.lengths[held].max()))


def make_reader(model):
    """The function (weights, rows, beta) -> ratios, Q, V of the recorded tokens, and the mean of Q. [games, T] each"""
    language, allowed = as_functions(model.graph, model.config), jnp.asarray(model.allowed)

    @jax.jit
    def read(policy, target, online, rows, beta):
        def hidden(params):
            return language.hidden(params, rows.tokens, rows.segments, None)

        q = target_q(ShiftArguments(beta, jnp.inf, target, online, model.bounds), hidden(target["trunk"]))
        logits, action = jnp.where(allowed, language.logits(policy, hidden(policy)), -1e9), next_tokens(rows)
        clone, steered = (jax.nn.log_softmax(odds) for odds in (logits, logits + beta * jnp.where(allowed, q, 0)))
        v = apply_head(online["v"], hidden(online["trunk"]))[..., 0]
        mean = (jnp.exp(steered) * jnp.where(allowed, q, 0)).sum(-1)
        return taken(steered, action) - taken(clone, action), taken(q, action), v, mean

    return read


def measure(workdir):
    """The cells of a seed: for each checkpoint and beta the return of games, and the estimates."""
    directory, steps = list_values(workdir)
    cells = []
    for checkpoint in (steps[-1] if step < 0 else step for step in CHECKPOINTS):
        model, metadata = read_values(directory, str(checkpoint))
        world, writer, read = make_world(metadata["config"]["env"]), ValueWriter(model), make_reader(model)
        rows, seed = held_out(workdir, model, metadata), metadata["config"]["seed"] + 1000
        order = np.argsort(~rows.is_action, 1, kind="stable")[:, : rows.is_action.sum(1).max()]  # its tokens first
        mask = np.take_along_axis(rows.is_action, order, 1)

        def packed(array, order=order, mask=mask):
            return np.where(mask, np.take_along_axis(np.asarray(array, np.float64), order, 1), 0)

        arrays = {"mask": mask, "reward": packed(rows.reward),
                  "text": np.where(mask, packed(np.cumsum(rows.closes, 1) - rows.closes), -1).astype(int)}  # fmt: skip
        for beta in BETAS:
            decoding = Decoding(beta=float(beta), max_tokens=6, batch_size=128)
            games = play_games(world, writer, decoding, range(GAMES), seed=seed, stream=SeedStream.EVALUATE)
            found = read(model.policy, model.target, model.online, rows, float(beta))
            ratio, arrays["q"], arrays["v"], mean_q = map(packed, found)
            cell = estimates(ratio, arrays, mean_q, metadata["config"]["train_values"]["discount"])
            cell |= {"beta": beta, "checkpoint": checkpoint, "ranked": ranked(arrays)}
            cells.append({name: float(value) for name, value in cell.items()}
                         | {"returns": [game.episode_return for game in games]})  # fmt: skip
    return cells


# ---- the tables


def interval(values):
    """A mean over seeds with its 95 % bootstrap interval."""
    values = np.array(values, np.float64)
    means = values[np.random.default_rng(0).integers(len(values), size=(10_000, len(values)))].mean(1)
    return "{:.2f} [{:.2f}, {:.2f}]".format(values.mean(), *np.quantile(means, (0.025, 0.975)))


def tables(seeds):
    """The tables of docs/results/ilql.md."""
    means = [np.array([np.mean(cell["returns"]) for cell in cells]) for cells in seeds]
    errors = [[np.std(cell["returns"]) / len(cell["returns"]) ** 0.5 for cell in cells] for cells in seeds]
    print("| chosen by | right | regret | betas chosen |\n| --- | ---: | ---: | --- |")
    rows = {name: [int(np.argmax([*map(rule, cells)])) for cells in seeds] for name, rule in RULES.items()}
    for name, chosen in rows.items():
        lost = [mean.max() - mean[at] for mean, at in zip(means, chosen, strict=True)]
        right = sum(one <= 1.96 * error[mean.argmax()] for one, mean, error in zip(lost, means, errors, strict=True))
        betas = ", ".join(f"{cells[at]['beta']:g}" for cells, at in zip(seeds, chosen, strict=True))
        print(f"| {name} | {right} of {len(seeds)} | {interval(lost)} | {betas} |")
    print(f"| by chance | | {interval([mean.max() - mean.mean() for mean in means])} | |")
    best = [cells[mean.argmax()]["beta"] for cells, mean in zip(seeds, means, strict=True)]
    print(f"| games: the truth | {len(seeds)} of {len(seeds)} | 0 | {', '.join(f'{beta:g}' for beta in best)} |\n")
    print("| checkpoint, beta | return of games | " + " | ".join(("game", "sure", "rewards", "robust", "text")) + " |")
    print("| --- |" + " ---: |" * 6)
    for at, cell in enumerate(seeds[0]):
        cells = [
            f"{np.mean([cells[at][name] for cells in seeds]):.2f}"
            for name in ("game", "sure", "rewards", "robust", "text")
        ]
        last = cell["checkpoint"] == seeds[0][-1]["checkpoint"]
        name = f"{'last' if last else int(cell['checkpoint'])}, {cell['beta']:g}"
        print(f"| {name} | {interval([mean[at] for mean in means])} | {' | '.join(cells)} |")


def main(home):
    """Measures the seeds that have not been measured, and prints the tables."""
    seeds = []
    for workdir in sorted(Path(home).glob("seed-*")):
        kept = workdir / "choice.json"
        if not kept.exists():
            kept.write_text(json.dumps(measure(workdir)))
        seeds.append(json.loads(kept.read_text()))
    tables(seeds)


if __name__ == "__main__":
    main(sys.argv[1])
