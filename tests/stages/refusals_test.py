from pathlib import Path

import pytest
from conftest import get_config, refusal

from motif_jax import experiment

pytestmark = pytest.mark.quick
TOY = {"policy.synchronous": True, "policy.num_workers": 0, "policy.games_per_worker": 8, "policy.rollout_length": 8,
       "policy.batch_size": 64, "policy.intrinsic_coefficient": 0.0}  # fmt: skip
WORDLE = {"env.world": "wordle", "transcripts.template": "marks", "language.tokeniser": "letters"}
PLAYED = WORDLE | {"train_values.recipe": "grpo", "train_values.batch_size": 16, "train_values.group_size": 8,
                   "train_values.games": 8, "decoding.betas": "0"}  # fmt: skip
RECORDED = {"env.world": "wordle", "collect.collector": "random", "collect.transcripts": 60}
WITHOUT_LOGITS = {"decoding.include_logits": False}
HERE = str(Path(__file__).parent)  # a directory that is neither a workdir nor a model
STAGES = {  # by what is tried: the stage, a config below configs/ with its argument, and values for it
    "annotate": ("annotate", "motif", "score", {}),
    "model": ("annotate", "motif", "score", {"annotate.backend": "model"}),
    "collect": ("collect", "motif", "score", {}),
    "recording": ("collect", "motif", "score", RECORDED),
    "reward": ("train_reward", "motif", "score", {}),
    "policy": ("train_policy", "motif", "toy", TOY),
    "online": ("train_policy", "motif", "score", {"policy.sources": "online:0.5"}),
    "glam": ("train_policy", "glam_quickstart", "goto_local,unread", {}),
    "glam, evaluated": ("evaluate", "glam_quickstart", "goto_local,unread", {}),
    "evaluate": ("evaluate", "motif", "score", {}),
    "written": ("evaluate", "ilql", "wordle", {}),
    "report": ("report", "motif", "score", {}),
    "cloning": ("train_language", "motif", "score", {"transcripts.import_from": __file__}),
    "values": ("train_values", "motif", "score", WORDLE),
    "values by playing": ("train_values", "motif", "score", PLAYED),
    "decoding": ("evaluate", "ilql", "wordle", {}),
    "visualize": ("visualize", "motif", "score", {}),
}
ROWS = [
    ("annotate", {"annotate.shard": 3, "annotate.num_shards": 3}, "shard must be between 0 and 2, not 3"),
    ("annotate", {"annotate.order": "disagreement", "annotate.num_shards": 2}, "needs all answers in one job"),
    ("model", {"annotate.model": HERE}, f"there is no config.json in {HERE!r} (--config.annotate.model)"),
    ("model", {"annotate.model": __file__}, "as a GGUF file: it does not begin with GGUF"),
    (
        "model",
        {"annotate.model": HERE, "annotate.prompt": "reworded", "annotate.prompt_file": "own.toml"},
        "take the place of 'reworded'",
    ),
    ("annotate", {"annotate.backend": "judge", "annotate.cache_dir": f"{__file__}/answers"}, "is not a directory (--"),
    ("recording", {"env.world": "nethack"}, "played by writing or that have prompts"),
    ("recording", {"env.world": "babyai", "collect.branch_player": "random"}, "can branch"),
    ("recording", {"collect.dataset": "/elsewhere"}, "not taken from a dataset"),
    ("recording", {"collect.collector": "optimum"}, "'optimum' (--config.collect.collector): did you mean 'optimal'?"),
    ("recording", {"collect.collector": "repeat*nan+candidate"}, "of 'repeat' must be a positive number, not nan"),
    ("recording", {"collect.collector": "candidate(3)"}, "'candidate(3)' has an argument or weight too many"),
    ("recording", {"collect.collector": "repeat(2 nobody)"}, "not 'nobody'"),
    ("recording", {"collect.policies": "runs/x"}, "scripted players, not policies"),
    ("recording", {"env.world": "own_worlds:Pictures", "collect.transcripts": 0}, "a dataset cannot keep 'place'"),
    ("collect", {"collect.dataset": "/nowhere"}, "dataset '/nowhere' has no data/message.npy with pairs"),
    ("collect", {"collect.dataset": "/nowhere", "collect.policies": "runs/x"}, "no policies play"),
    ("collect", {"collect.policies": "motif_jax/quickstart,/nowhere"}, "there is no policy in '/nowhere'"),
    ("reward", {"reward.import_from": __file__}, "has no format of rewards that is read here"),
    ("reward", {"reward.import_from": "/nowhere.pth", "reward.annotators": "llama70b"}, "not learnt from annotations"),
    ("collect", {"collect.segment_length": 6000}, "no episode has 6000 steps"),
    ("collect", {"env.task": "nosuch:Game"}, "cannot use the game 'nosuch:Game' (--config.env.task)"),
    ("policy", {"policy.train_until": "success"}, "write NAME>=NUMBER or NAME<=NUMBER"),
    ("policy", {"policy.train_until": "luck>=1"}, "one of return, steps, success"),
    ("policy", {"policy.train_until": "success>=much"}, "needs a finite number"),
    ("reward", {"reward.message": "none"}, "a reward must read something"),
    ("policy", {"policy.num_minibatches": 3}, "24 = 8 steps of a rollout x 1 devices x 3 minibatches"),
    ("policy", {"policy.init_from": "/nowhere"}, "no directory '/nowhere'"),
    ("policy", {"policy.init_from": HERE}, f"there is no policy in {HERE!r}"),
    ("policy", {"policy.reward_dir": HERE}, f"there is no reward in {HERE!r}"),
    ("policy", {"policy.reward_dir": "motif_jax/quickstart", "policy.reward_checkpoint": "7"}, "no checkpoint '7'"),
    ("policy", {"policy.num_devices": 64}, "64 devices were asked for, but there are "),
    ("policy", {"policy.fsdp": 3}, "fsdp 3 times tensor 1 must divide the number of devices of this host, "),
    ("policy", {"policy.num_workers": 2}, "synchronous run has at most one worker"),
    ("policy", {"policy.learning_rate_decay": "exponential", "policy.anneal_learning_rate_to": 0.0}, "comes to 0"),
    ("policy", {"policy.extrinsic_coefficient": 0.0}, "needs at least one reward"),
    ("policy", {"policy.discount": 0, "policy.bootstrap": "inferred"}, "divides by the discount, which must be above"),
    ("policy", {"distributed.coordinator": "here:1", "distributed.process_id": 4}, "process_id 4 must be below"),
    ("policy", {"distributed.num_processes": 2}, "2 processes need the address of process 0"),
    ("policy", {"policy.sources": "cuont:0.1"}, "'cuont' (--config.policy.sources): did you mean 'count'?"),
    ("policy", {"policy.sources": "rnd"}, "'rnd' needs a coefficient, as in 'rnd:0.1' (--config.policy.sources)"),
    ("policy", {"policy.sources": "rnd:much"}, "the coefficient of the reward source 'rnd' must be a number "),
    ("policy", {"policy.sources": "rnd:0.1,rnd:0.2"}, "two rewards have the name 'rnd' in 'rnd:0.1,rnd:0.2'"),
    ("policy", {"policy.sources": "event_mod:Class"}, "as in 'event_mod:Class:0.1' (--config.policy.sources)"),
    ("policy", {"policy.sources": "learnt:0.5"}, "the learnt reward is --config.policy.intrinsic_coefficient"),
    ("online", {"policy.online.goals": "gold"}, "must be a schedule such as "),
    ("online", {"policy.online.goals": "gold@0,stairs@7,combat@7"}, "whose steps begin with 0 and rise"),
    ("online", {"policy.online.goals": "gold@0,stars@7"}, "of a schedule, --config.policy.online.goals): a goal"),
    ("online", {"annotate.goal": "stars"}, "and not 'stars' (--config.annotate.goal; of a schedule, "),
    ("online", {"annotate.goal": "Reach level 3@2, please"}, "must be a schedule such as "),
    ("online", {"policy.online.order": "uncertain"}, "needs a network, which 'retrieval' lacks"),
    ("online", {"policy.online.init_from": "/none"}, "there is no directory '/none'"),
    ("online", {"policy.online.init_from": HERE}, f"there is no reward in {HERE!r}"),
    ("online", {"annotate.backend": "model", "annotate.model": HERE}, "there is no config.json"),
    ("online", {"annotate.backend": "score"}, "cannot be asked during training"),
    ("glam", {"policy.language.model": "/nowhere"}, "there is no directory '/nowhere'"),
    ("glam", {"policy.language.model": HERE}, "there is no config.json in"),
    ("glam, evaluated", {"evaluate.variations": "words=synonyms"}, "a variation must be as rewording=synonyms"),
    ("glam, evaluated", {"evaluate.variations": "rewording=synonym"}, "did you mean"),
    ("cloning", {"train_language.batch_size": 8, "train_language.num_parts": 3}, "cannot be split into 3 parts"),
    ("cloning", {"language.width": 16, "language.heads": 3}, "--config.language.width"),
    ("cloning", {"transcripts.path": "/none"}, "--config.transcripts.path"),
    ("cloning", {"transcripts.path": HERE, "transcripts.import_from": ""}, "transcripts.json': No such file"),
    ("cloning", {"transcripts.import_from": f"{__file__},/none"}, "cannot read '/none': No such file or directory"),
    ("cloning", {"transcripts.import_from": HERE}, "it is not a regular file (--config.transcripts.import_from)"),
    ("cloning", {"language.model": HERE}, "there is no config.json in"),
    ("values", {"train_values.policy": HERE}, "there is no config.json in"),
    ("values", {"train_values.max_length": 5000}, "of train_language reads 256 tokens at most, and rows have 5,000"),
    ("values", {"train_values.start": "fresh"}, "such as ilql+joint"),
    ("values", {"train_values.batch_size": 8, "train_values.num_parts": 3}, "cannot be split into 3 parts"),
    ("values", {"train_values.recipe": "ilql+joint", "language.lora_rank": 2}, "a given policy"),
    ("values", {"train_values.value_min": 2.0, "train_values.value_max": -2.0}, "value_min must be below value_max"),
    ("values by playing", {"train_values.group_size": 5}, "16 games cannot be cut into groups of 5"),
    ("values by playing", {"train_values.games": 0}, "chooses its checkpoint by the return of games"),
    ("values by playing", {"decoding.top_k": 3}, "top_k must be 0, top_p 1"),
    ("values by playing", WITHOUT_LOGITS, "makes all tokens equally probable"),
    ("values", WITHOUT_LOGITS | {"train_values.recipe": "chai", "train_values.games": 8}, "equally probable"),
    ("decoding", WITHOUT_LOGITS, "makes all tokens equally probable"),
    ("decoding", WITHOUT_LOGITS | {"train_values.recipe": "bc", "decoding.betas": "0"}, "equally probable"),
    ("visualize", {"visualize.episode": "bst"}, "unknown episode 'bst'"),
    ("visualize", {"visualize.policy": "runs/x@all"}, "name one policy"),
    ("visualize", {"visualize.policy": "/nowhere"}, "there is no policy in '/nowhere'"),
    ("visualize", {"visualize.policy": "motif_jax/quickstart@7"}, "has no checkpoint '7'"),
    ("visualize", {"visualize.replay": __file__}, "File is not a zip file (--config.visualize.replay)"),
    ("visualize", {"visualize.replay": "x.npz", "visualize.policy": "random"}, "an episode of some policy already"),
    ("visualize", {"visualize.replay": "x.npz", "visualize.episode": "7"}, "an episode of some policy already"),
    ("evaluate", {"evaluate.policy": "/nowhere"}, "there is no policy in '/nowhere'"),
    ("glam, evaluated", {"evaluate.policy": "/nowhere.gguf"}, "there is no file '/nowhere.gguf'"),
    ("evaluate", {"evaluate.baselines": f"random,{HERE}@3"}, f"there is no policy in {HERE!r}"),
    ("evaluate", {"policy.reward_dir": HERE}, f"there is no reward in {HERE!r}"),
    ("written", {"evaluate.policy": HERE}, f"there are no values in {HERE!r}"),
    ("report", {"report.runs": "/nowhere"}, "there is no workdir '/nowhere'"),
    # what went before without a sentence: wrong results, or a traceback after other stages
    ("recording", {"env.options": '{"max_episode_steps": -5}'}, "max_episode_steps must be a whole number from 1"),
    ("recording", {"env.world": "maze", "env.options": '{"max_episode_steps": "7"}'}, "max_episode_steps must be "),
    ("recording", {"env.options": '{"words": 3}'}, "words must be text of up to 4,000 characters, not 3"),
    ("recording", {"collect.collector": "repeat(0)"}, "the number in brackets must be a whole number from 1"),
    ("policy", {"policy.sources": "json:JSONDecoder:0.1"}, "'json:JSONDecoder' is not a subclass of RewardSource"),
    ("policy", {"env.world": "own_worlds:Blind", "policy.network": "general"}, "`reads` of the world 'blind' is empty"),
    ("policy", {"policy.network": "json:JSONDecoder"}, "'json:JSONDecoder': it is not a subclass of flax.nnx.Module"),
    ("collect", {"env.task": "json:JSONDecoder"}, "the game 'json:JSONDecoder' does not say its `num_actions`"),
    ("glam", {"policy.language.lora_rank": 2}, "low-rank additions to an untrained model learn little"),
    ("cloning", {"language.lora_rank": 2}, "low-rank additions to an untrained model learn little"),
    ("values", {"train_values.games": 4, "train_values.games_beta": 0.0}, "beta 0 would play without the values"),
    (
        "values",
        {"train_values.games": 4, "train_values.games_beta": 1e7},
        "games_beta must be a number from 0 to 1e+06",
    ),
    ("decoding", {"decoding.betas": "0,1e39"}, "each beta must be a number such as 4, not '0,1e39'"),  # float32: inf
    ("visualize", {"visualize.speed": 0.001}, "speed must be a number from 0.002"),
]


def check_refused(what, values, said, tmp_path):
    stage, file, argument, given = STAGES[what]
    config = get_config(f"{file}.py", argument)
    config.update_from_flattened_dict(given | values)
    refusal(lambda: experiment.check(config.to_dict(), [stage], tmp_path), said, "--config.")


@pytest.mark.parametrize(("what", "values", "said"), ROWS)
def test_values_that_cannot_work_are_refused_in_one_sentence(what, values, said, tmp_path):
    check_refused(what, values, said, tmp_path)


def test_what_an_earlier_stage_may_still_write_is_not_missed(tmp_path):
    workdir = tmp_path / "w"
    config = get_config("motif.py", "toy")
    config.policy.reward_dir = config.evaluate.policy = str(workdir)
    experiment.check(config.to_dict(), ["train_reward", "train_policy", "evaluate"], workdir)
    refusal(lambda: experiment.check(config.to_dict(), ["train_policy"], workdir), "there is no directory")
    experiment.check(config.to_dict(), ["train_policy"], workdir, [tmp_path])  # another run may make it

    config = get_config("motif.py", "toy", policy__reward_dir="/gone")
    (workdir / "policy/checkpoints/64").mkdir(parents=True)  # they hold the reward
    experiment.check(config.to_dict(), ["evaluate"], workdir)


def test_a_place_for_answers_is_needed_by_the_stage_that_keeps_them(tmp_path):
    config = get_config("motif.py", "toy", annotate__backend="server", annotate__cache_dir=f"{__file__}/x")
    refusal(lambda: experiment.check(config.to_dict(), ["annotate"], tmp_path), "nothing can be written into")
    experiment.check(config.to_dict(), ["evaluate"], tmp_path)


def test_a_complete_stage_needs_nothing(tmp_path):
    config = get_config("motif.py", "toy", collect__dataset="/gone")
    refusal(lambda: experiment.check(config.to_dict(), ["collect"], tmp_path), "dataset '/gone' has no data")
    for file in ("dataset/dataset.json", "parts/collect.json"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("{}")
    experiment.check(config.to_dict(), ["collect"], tmp_path)
