"""Worlds of motif_jax as a taskset of verifiers: each task is an episode.

    vf-eval motif-jax-verifiers --env.taskset.world '{"world": "wordle"}' --env.taskset.seeds 20 \\
        --env.player.harness.id null --env.player.runtime.type subprocess -m MODEL --client.base-url URL

The model's answers are the agent's texts, the game's texts are the user's, and the reward is the sum of the game's.
"""

from collections.abc import Iterator

import verifiers.v1 as vf

from motif_jax.envs.conversation import Conversation

__all__ = ["MotifJaxEnv", "MotifJaxTaskset"]


class MotifJaxConfig(vf.TasksetConfig):
    """The world and its episodes."""

    world: dict = {"world": "wordle"}  # values of the config section `env` of motif_jax
    seeds: int = 1000  # episodes, from the seed 0 on


class MotifJaxData(vf.TaskData):
    """The world and the seed of an episode."""

    world: dict
    seed: int


class MotifJaxTask(vf.Task[MotifJaxData]):
    """An episode."""


class MotifJaxEnvConfig(vf.EnvConfig):
    """The player: a model and its harness."""

    player: vf.AgentConfig = vf.AgentConfig()


class MotifJaxEnv(vf.Env[MotifJaxEnvConfig]):
    """Plays an episode with a model."""

    async def run(self, task, agents):
        """See `vf.Env`."""
        talk, total = Conversation(task.data.world), 0.0
        try:
            heard = talk.begin(task.data.seed)
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn(heard.text or "Begin.")
                while not segment.terminated:
                    heard = talk.say(segment.last_reply.strip())
                    total += heard.reward
                    if heard.done:
                        break
                    segment = await interaction.turn(heard.text or "The game says nothing.")
        finally:
            talk.close()
        interaction.trace.record_reward("game_reward", total, 1.0)


class MotifJaxTaskset(vf.Taskset[MotifJaxTask, MotifJaxConfig]):
    """The episodes of a world, one per seed."""

    def load(self) -> Iterator[MotifJaxTask]:
        """See `vf.Taskset`."""
        world = self.config.world
        talk = Conversation(world)
        about = talk.about
        talk.close()
        for seed in range(self.config.seeds):
            data = MotifJaxData(name=f"{seed}", prompt=None, system_prompt=about, world=world, seed=seed)
            yield MotifJaxTask(data, self.config.task)
