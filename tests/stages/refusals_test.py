import pytest
from conftest import get_config

from motif_jax import experiment
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
TOY = {"policy.synchronous": True, "policy.num_workers": 0, "policy.games_per_worker": 8, "policy.rollout_length": 8,
       "policy.batch_size": 64, "policy.intrinsic_coefficient": 0.0}  # fmt: skip
GROUPS = TOY | {"policy.algorithm": "grpo", "policy.grpo.group_size": 4, "policy.warmup_steps": 0,
                "env.max_episode_steps": 50, "policy.rollout_length": 50, "policy.batch_size": 400}  # fmt: skip
WORDLE = {"env.world": "wordle", "transcripts.template": "marks", "language.tokeniser": "letters"}
PLAYED = WORDLE | {"train_values.recipe": "grpo", "train_values.batch_size": 16, "train_values.group_size": 8,
                   "train_values.games": 8, "decoding.betas": "0"}  # fmt: skip
RECORDED = {"env.world": "wordle", "collect.collector": "random", "collect.transcripts": 60}
TRAINED = {"write_reward.train_for_env_steps": 128, "policy.options": "", "policy.controller": ""}
STAGES = {  # by what is tried: the stage, a config below configs/ with its argument, and values for it
    "annotate": ("annotate", "motif", "score", {}),
    "collect": ("collect", "motif", "score", {}),
    "recording": ("collect", "motif", "score", RECORDED),
    "policy": ("train_policy", "motif", "toy", TOY),
    "games elsewhere": ("train_policy", "motif", "toy", {"policy.num_workers": 0, "cluster.game_hosts": 2}),
    "online": ("train_policy", "motif", "score", {"policy.sources": "online:0.5"}),
    "groups": ("train_policy", "motif", "toy", GROUPS),
    "glam": ("train_policy", "glam_quickstart", "goto_local,unread", {}),
    "glam, evaluated": ("evaluate", "glam_quickstart", "goto_local,unread", {}),
    "cloning": ("train_language", "motif", "score", {"transcripts.import_from": __file__}),
    "values": ("train_values", "motif", "score", WORDLE),
    "values by playing": ("train_values", "motif", "score", PLAYED),
    "programs": ("write_reward", "options", "treasure", {"annotate.goal": "gold"}),
    "visualize": ("visualize", "motif", "score", {}),
}
ROWS = [
    ("annotate", {"annotate.shard": 3, "annotate.num_shards": 3}, "shard must be between 0 and 2, not 3"),
    ("annotate", {"annotate.order": "disagreement", "annotate.num_shards": 2}, "needs all answers in one job"),
    ("recording", {"env.world": "nethack"}, "played by writing or that have prompts"),
    ("recording", {"env.world": "babyai", "collect.branch_player": "random"}, "can branch"),
    ("recording", {"collect.dataset": "/elsewhere"}, "not taken from a dataset"),
    ("recording", {"collect.policies": "runs/x"}, "scripted players, not policies"),
    ("recording", {"env.world": "own_worlds:Pictures", "collect.transcripts": 0}, "a dataset cannot keep 'place'"),
    ("collect", {"collect.segment_length": 6000}, "no episode has 6000 steps"),
    ("collect", {"env.task": "nosuch:Game"}, "cannot use the game 'nosuch:Game' (--config.env.task)"),
    ("policy", {"policy.num_minibatches": 3}, "24 = 8 steps of a rollout x 1 devices x 3 minibatches"),
    ("policy", {"policy.init_from": "/nowhere"}, "no directory '/nowhere'"),
    ("policy", {"policy.num_workers": 2}, "synchronous run has at most one worker"),
    ("policy", {"policy.extrinsic_coefficient": 0.0}, "needs at least one reward"),
    ("policy", {"distributed.coordinator": "here:1", "distributed.process_id": 4}, "process_id 4 must be below"),
    ("games elsewhere", {}, "need a cluster's address"),
    ("games elsewhere", {"cluster.address": "auto", "policy.synchronous": True}, "do not wait for games"),
    ("games elsewhere", {"cluster.address": "auto", "policy.algorithm": "ppo"}, "do not wait for games"),
    ("online", {"policy.online.goals": "gold"}, "must be a schedule such as "),
    ("online", {"policy.online.goals": "gold@0,stairs@7,combat@7"}, "whose steps begin with 0 and rise"),
    ("online", {"policy.online.goals": "gold@0,stars@7"}, "and not 'stars'"),
    ("online", {"policy.online.order": "uncertain"}, "needs a network, which 'retrieval' lacks"),
    ("online", {"policy.online.kind": "words"}, "needs a file of word vectors"),
    ("online", {"policy.online.init_from": "/none"}, "there is no directory '/none'"),
    ("online", {"annotate.backend": "score"}, "cannot be asked during training"),
    ("groups", {"policy.grpo.group_size": 3}, "8 games at once cannot play groups of 3 episodes"),
    ("groups", {"policy.rollout_length": 25}, "whole episodes, of up to 50 steps, but rollouts have 25"),
    ("groups", {"policy.batch_size": 200}, "8 games x 50 steps, or a multiple, not 200"),
    ("groups", {"policy.warmup_steps": 10}, "needs --config.policy.warmup_steps=0"),
    ("glam", {"policy.language.model": "/nowhere"}, "there is no directory '/nowhere'"),
    ("glam, evaluated", {"evaluate.variations": "words=synonyms"}, "a variation must be as rewording=synonyms"),
    ("glam, evaluated", {"evaluate.variations": "rewording=synonym"}, "did you mean"),
    ("cloning", {"train_language.batch_size": 8, "train_language.num_parts": 3}, "cannot be split into 3 parts"),
    ("cloning", {"language.width": 16, "language.heads": 3}, "--config.language.width"),
    ("cloning", {"transcripts.path": "/none"}, "--config.transcripts.path"),
    ("values", {"train_values.start": "new"}, "such as ilql+joint"),
    ("values", {"train_values.batch_size": 8, "train_values.num_parts": 3}, "cannot be split into 3 parts"),
    ("values", {"train_values.recipe": "ilql+joint", "language.lora_rank": 2}, "a given policy"),
    ("values", {"train_values.value_min": 2.0, "train_values.value_max": -2.0}, "value_min must be below value_max"),
    ("values by playing", {"train_values.group_size": 5}, "16 games cannot be cut into groups of 5"),
    ("values by playing", {"train_values.games": 0}, "chooses its checkpoint by the return of games"),
    ("values by playing", {"decoding.top_k": 3}, "top_k must be 0, top_p 1"),
    ("programs", {"write_reward.writer": "server", "annotate.server.url": "localhost:8000"}, "is not an address"),
    ("programs", {"annotate.backend": "score"}, "a judge of captions is asked"),
    ("programs", TRAINED | {"write_reward.chosen_by": "return, "}, "no figure '': choose from return, "),
    ("visualize", {"visualize.export": "film.avi"}, "must end in one of .cast, .gif, .mp4"),
    ("visualize", {"visualize.episode": "bst"}, "unknown episode 'bst'"),
    ("visualize", {"visualize.policy": "runs/x@all"}, "name one policy"),
]


@pytest.mark.parametrize(("what", "values", "said"), ROWS)
def test_values_that_cannot_work_are_refused_in_one_sentence(what, values, said):
    stage, file, argument, given = STAGES[what]
    config = get_config(f"{file}.py", argument)
    config.update_from_flattened_dict(given | values)
    with pytest.raises(UserError) as refused:
        experiment.check(config.to_dict(), [stage])
    assert said in str(refused.value)
    assert "--config." in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
