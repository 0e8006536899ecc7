import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_options import options_of

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.acting import SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.contrib.options.acting import Options
from motif_jax.contrib.options.plan import mixtures
from motif_jax.envs.world import WAIT
from motif_jax.networks.kinds import to_record
from motif_jax.policies.model import Model, Policy, PolicyPlayer
from motif_jax.structs import ArraySpec

pytestmark = pytest.mark.quick
GAMES = 6


def model_of(acting: Options) -> Model:
    """Its logits depend on nothing, so that everything is chosen with equal probability."""

    heads = acting.heads

    def step(params, frozen, observations, first, core, prepared):
        count = len(first)
        assert observations["behaviour"].shape == (count, heads.options + 1)
        return jnp.zeros((count, sum(heads.sizes))), jnp.zeros(count), core + 1

    return Model((), lambda *_: None, step, None, ("seen",), 1, heads.actions, acting=acting)


@pytest.mark.parametrize("lengths", [(3,), (1, 2, 4)])
def test_the_controller_is_in_charge_at_first_and_after_every_turn(lengths):
    player = PolicyPlayer(model_of(options_of(5, 3, lengths)), GAMES, GAMES, seed=0)
    chance, left, charge = np.random.default_rng(0), np.zeros(GAMES, int), np.full(GAMES, 3)
    seen = {"seen": np.zeros((GAMES, 1), np.float32)}
    options, taken = set(), set()
    for number in range(60):
        first = chance.random(GAMES) < 0.1 if number else np.ones(GAMES, bool)
        charge[first] = 3
        actions, outputs = player(seen, first.copy(), np.arange(GAMES))
        assert outputs["chooser"].tolist() == charge.tolist()
        for game in range(GAMES):
            if charge[game] == 3:
                assert actions[game] == WAIT
                charge[game], left[game] = outputs["option"][game], lengths[outputs["length"][game]]
                options.add(charge[game])
                taken.add(left[game])
            else:
                assert actions[game] == outputs["drawn"][game]
                left[game] -= 1
                charge[game] = charge[game] if left[game] else 3
        assert outputs["next"].tolist() == charge.tolist()
    assert options == {0, 1, 2}
    assert taken == {*lengths}
    assert outputs["logits"].shape == (GAMES, 5 + 3 + (3 if len(lengths) > 1 else 0))


def test_a_policy_in_a_notebook_keeps_an_option_for_its_turn_and_never_waits():
    acting = options_of(5, 3, (3,))
    spec = {"network": "general", "num_actions": 5, "reads": to_record({"seen": ArraySpec((1,), "float32")})}
    policy = Policy(model_of(acting), {"model": spec}, None, seed=0)
    policy.begin(GAMES)
    seen, choosers = {"seen": np.zeros((GAMES, 1), np.float32)}, []
    for number in range(12):
        if number == 6:
            policy.restart(np.arange(GAMES) < 2)
        act = policy(seen)
        assert ((act.action >= 0) & (act.action < 5)).all()
        assert act.probabilities.shape == (GAMES, 5)
        choosers.append(act.chooser)
    turns = np.array(choosers).reshape(4, 3, GAMES)  # of three steps; at the restart, a turn is over as well
    assert (turns == turns[:, :1]).all()
    assert {*turns.ravel()} == {"a", "b", "c"}
    alone = Policy(model_of(acting.variant("b")), {"model": spec}, None)
    alone.begin(GAMES)
    assert alone(seen).chooser == ["b"] * GAMES


def test_a_given_mixture_is_observed_and_greedy_players_take_the_likeliest_choices():
    weights = mixtures((0.0, 1.0), 2, sum_to_one=True)
    acting, behaviour = options_of(3, 2, (1, 5), (0.0, 1.0)), []

    def step(params, frozen, observations, first, core, prepared):
        jax.debug.callback(lambda seen: behaviour.append(np.array(seen)), observations["behaviour"])
        return jnp.tile(jnp.array([0.0, 2, 1, 3, 0, 0, 4, 1, 0]), (len(first), 1)), jnp.zeros(len(first)), core

    model = Model((), lambda *_: None, step, None, ("seen",), 1, 3, acting=acting)
    seen, games = {"seen": np.zeros((GAMES, 1), np.float32)}, np.arange(GAMES)
    steered = model._replace(acting=acting.variant("a=0.25+b=0.75"))
    player = PolicyPlayer(steered, GAMES, GAMES, seed=0, greedy=True)
    actions, outputs = player(seen, np.ones(GAMES, bool), games)
    jax.effects_barrier()
    np.testing.assert_allclose(behaviour.pop(), [[0.25, 0.75, 0.0]] * GAMES)
    assert actions.tolist() == [1] * GAMES
    assert outputs["chooser"].tolist() == [0] * GAMES

    player = PolicyPlayer(model, GAMES, GAMES, seed=0, greedy=True)
    actions, outputs = player(seen, np.ones(GAMES, bool), games)
    assert actions.tolist() == [WAIT] * GAMES
    assert outputs["next"].tolist() == [1] * GAMES  # the first coefficient's first choice, the second one's second
    actions, outputs = player(seen, np.zeros(GAMES, bool), games)
    jax.effects_barrier()
    np.testing.assert_allclose(behaviour[-2:], [[[0.0, 0.0, 1.0]] * GAMES, [[*weights[1].tolist(), 0.0]] * GAMES])
    assert actions.tolist() == [1] * GAMES
    assert outputs["next"].tolist() == [4] * GAMES  # the turn of one step is over


class Waiting(RandomPolicy):
    """Plays the same actions as a policy that never waits, with waits between them."""

    def __init__(self, num_actions: int, share: float):
        super().__init__(num_actions)
        self._share, self._waits = share, np.random.default_rng(1)
        self._actions = [np.random.default_rng(game) for game in range(GAMES)]
        self._number = num_actions

    def __call__(self, observations, first, games):
        actions = np.full(len(games), WAIT)
        for place, game in enumerate(games):
            if self._waits.random() >= self._share:
                actions[place] = self._actions[game].integers(self._number)
        return actions, {}


OBSERVED = {
    "treasure": ("view", "numbers", "event_gold", "event_stairs", "event_message"),
    "nethack": (
        "blstats", "crop", "message", "event_message", "event_score", "event_gold", "event_health", "event_stairs",
    ),
}  # fmt: skip


def played(world: str, share: float, steps: int) -> tuple[list[dict[str, list]], list]:
    env = {"world": world, "max_episode_steps": 25}
    with ActorPool(
        env, OBSERVED[world], num_workers=0, games_per_worker=GAMES, groups=2, rollout_length=7, slots_per_group=2,
        seed=3,
    ) as pool:  # fmt: skip
        policy, ended = Waiting(len(pool.world.action_names), share), [[] for _ in range(GAMES)]
        steps_of_games, count = [{name: [] for name in (*OBSERVED[world], "reward", "first")} for _ in range(GAMES)], 0
        for batch in itertools.takewhile(lambda _: count < steps, SyncLoop(pool, policy, 2)):
            arrays, count = batch.arrays, count + batch.steps
            waits = arrays["action"] == WAIT
            assert batch.steps == (~waits).sum()
            assert not (arrays["terminated"] | arrays["truncated"])[waits].any()
            assert not arrays["reward"][waits].any()
            for name in OBSERVED[world]:
                if name.startswith("event_") and name != "event_message":
                    assert world == "treasure" or not arrays[name][waits].any()
                else:  # a game that waits shows the same moment again
                    same = arrays[name][1:] == arrays[name][:-1] if len(arrays[name]) > 7 else np.ones((7, GAMES, 1))
                    assert same.reshape(7, GAMES, -1).all(-1)[waits].all()
            for game in range(GAMES):
                for name in steps_of_games[game]:
                    steps_of_games[game][name] += [array.tobytes() for array in arrays[name][:7, game][~waits[:, game]]]
            for full, episodes in zip(batch.fulls, batch.episodes, strict=True):
                for one in episodes:
                    ended[full.group * GAMES // 2 + one.game].append(one.info)
    return steps_of_games, ended


@pytest.mark.parametrize("world", ["treasure", "nethack"])
def test_a_game_that_waits_is_not_changed_by_it(world):
    """Games begin their episodes in another order if some wait, so the first episode of each is compared."""
    (plain, _), (waited, ended) = (played(world, share, 200) for share in (0.0, 0.4))
    for game in range(GAMES):
        firsts = plain[game]["first"]
        end = next((step for step in range(1, len(firsts)) if firsts[step] == b"\1"), len(firsts))
        for name in waited[game]:
            if name != "first":  # a moment at which a game waits is read twice
                count = min(end, len(waited[game][name]))
                assert count > 5
                assert waited[game][name][:count] == plain[game][name][:count], name
    assert all(info.steps <= 25 for episodes in ended for info in episodes)
    assert any(info.steps == 25 for episodes in ended for info in episodes)
