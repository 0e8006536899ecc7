from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import refusal

from motif_jax.envs.world import ActionSpace
from motif_jax.learner.acting import ALONE, Acting, acting_of
from motif_jax.policies.model import Model, PolicyPlayer, play

pytestmark = pytest.mark.quick


class Computed:
    ready = False

    def is_ready(self) -> bool:
        return self.ready


def make_player() -> PolicyPlayer:
    """Prefers action 1, with a value that counts the steps of an episode."""

    def step(params, frozen, observations, first, core, prepared):
        core = jnp.where(first[:, None], 0, core) + 1
        return jnp.array([[0.0, 100.0]]).repeat(len(core), 0), core[:, 0], core

    model = Model(jnp.zeros(1), lambda params, frozen: None, step, step, ("x",), 1, 2)
    return PolicyPlayer(model, num_games=6, group_size=2, seed=0)


def ask(player, games, first=False):
    games = np.array(games)
    return player({"x": np.zeros((len(games), 1))}, np.full(len(games), first), games)


def test_the_last_version_that_is_there_is_played():
    player = make_player()
    version = lambda: ask(player, [0, 1])[1]["version"].tolist()  # noqa: E731
    assert version() == [0, 0]
    one, two = Computed(), Computed()
    played = player.prepare(jnp.zeros(1), 1)
    player.swap(played._replace(leaves=(one,)), wait=False)
    assert version() == [0, 0]
    player.swap(played._replace(leaves=(two,), version=2), wait=False)
    one.ready = True  # a learner that is always busy with the next one holds up none
    player._step = lambda *inputs: (inputs[1], np.zeros((2, 1)), jnp.zeros((2, 4), jnp.int32))
    assert version() == [1, 1]
    two.ready = True
    assert version() == [2, 2]


def test_every_game_has_a_memory_of_its_own():
    player = make_player()
    ask(player, [0, 1, 4, 5], first=True)
    actions, outputs = ask(player, [4, 5, 0, 1, 2, 3])
    assert actions.tolist() == [1] * 6
    assert outputs["value"].tolist() == [2, 2, 2, 2, 1, 1]  # steps, this one included
    assert np.asarray(outputs["core"])[:6, 0].tolist() == [1, 1, 1, 1, 0, 0]  # before it
    assert ask(player, [4, 5], first=True)[1]["value"].tolist() == [1, 1]


def spaced(outputs: int, space: ActionSpace | None = None, acting: Acting | None = None) -> Model:
    """Reads an observation of every type; nothing that it computes is rounded in another order elsewhere."""

    def step(params, frozen, observations, first, core, prepared):
        seen = sum(array.astype(jnp.float32).reshape(len(first), -1)[:, :3] for array in observations.values())
        core = jnp.where(first[:, None], 0, core) + seen[:, :1]
        return params * core * jnp.linspace(-1, 1, outputs), core[:, 0], core

    spec = {"action_space": space.record(), "num_actions": outputs} if space else {}
    acting = acting or Acting(spec)
    actions = outputs - acting.more_outputs
    return Model(jnp.float32(0.3), lambda *_: (), step, step, (), 1, actions, acting=acting)


SEEN = {
    "bytes": np.uint8, "flags": bool, "small": np.int16, "long": np.int64, "double": np.float64, "single": np.float32
}  # fmt: skip


@pytest.mark.parametrize("model", [
    spaced(3), spaced(5, ActionSpace(sizes=(2, 3))), spaced(4, ActionSpace(low=(0.0, -1), high=(1.0, 2))),
], ids=["action", "choices", "numbers"])  # fmt: skip
def test_one_array_each_way_has_the_bits_of_many(model, monkeypatch):
    check_one_array_each_way(model, monkeypatch)


def check_one_array_each_way(model, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # results are sent before they are asked for
    player = PolicyPlayer(model, num_games=6, group_size=2, seed=0)
    sent = []
    step = player._step
    player._step = lambda *inputs: sent.append(inputs) or step(*inputs)
    plain = jax.jit(partial(play, model.step, model.acting, False))
    memory, weights, key = player._memory, (model.params, (), ()), jax.random.key(0)
    draw = np.random.default_rng(0)
    for call, games in enumerate(([0, 1, 2, 3], [4, 5], [2, 3, 0, 1, 4, 5], [0, 1])):
        seen = {name: draw.normal(0, 9, (len(games), 3)).astype(dtype) for name, dtype in SEEN.items()}
        first = draw.random(len(games)) < 0.3
        memory, core, *results = plain(weights, memory, key, np.int32(call), seen, first, np.array(games))
        actions, outputs = player(seen, first, np.array(games))
        made = [actions, *(outputs[name] for name in ("logits", "value", *model.acting.recorded))]
        for one, other in zip([core, *results], [outputs["core"], *made], strict=True):
            assert one.dtype == other.dtype
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert [sum(isinstance(one, np.ndarray) for one in inputs) for inputs in sent] == [1] * 4


def test_any_number_of_games_is_answered_with_one_program_per_size():
    compiled: list[int] = []  # for these numbers of games

    def step(params, frozen, observations, first, core, prepared):
        compiled.append(len(core))
        return jnp.zeros((len(core), 2)), observations["x"][:, 0] + frozen, core

    model = Model(jnp.zeros(1), lambda params, frozen: None, step, step, ("x",), 0, 2, frozen=jnp.float32(100))
    player = PolicyPlayer(model, num_games=40, group_size=4, seed=0)
    for count in range(1, 41):
        actions, outputs = player({"x": np.arange(count)[:, None]}, np.zeros(count, bool), np.arange(count))
        assert (actions.shape, outputs["logits"].shape) == ((count,), (count, 2))
        assert outputs["value"].tolist() == [100 + number for number in range(count)]
    # 4, 8, ... 32 games are whole groups, of which up to 8 are not padded, 36 and 40 become 64; others: powers of two
    assert sorted(compiled) == [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 64]


def test_a_policy_alone_has_no_variants_and_another_one_needs_its_plugin():
    refusal(lambda: ALONE.variant("gold"), "the policy has one behaviour, and no variant 'gold'")
    missing = {"network": "small", "num_actions": 2, "gardener": {"names": ["a"]}}
    refusal(lambda: acting_of(missing), "the policy needs the plugin 'gardener', which is not installed")
