"""The quickstarts of the four methods in tiny sizes, each to its page."""

import pytest

SMALL = (
    "policy.num_workers=1", "policy.games_per_worker=4", "policy.groups=2", "policy.rollout_length=8",
    "policy.batch_size=32", "policy.num_minibatches=1", "policy.train_for_env_steps=64", "policy.warmup_steps=5",
    "policy.tensorboard=False", "evaluate.episodes=2", "evaluate.num_workers=0", "evaluate.games_per_worker=2",
    "env.max_episode_steps=30",
)  # fmt: skip
CLONE = ("language.width=8", "language.layers=1", "language.heads=2", "train_language.num_epochs=1")
QUICKSTARTS = {
    "quickstart:toy": (
        *SMALL, "collect.num_pairs=40", "collect.num_workers=0", "reward.num_epochs=1", "reward.batch_size=16",
        "reward.message=lt_cnn_small",
    ),
    "oni_quickstart": (*SMALL, "annotate.backend=lexicon", "policy.online.batch_size=16"),
    "glam_quickstart:goto_small": (
        *SMALL, *CLONE, "transcripts.import_from=goto", "train_language.batch_size=64", "policy.language.width=8",
        "policy.language.layers=1", "policy.language.hidden=8", "policy.groups=1", "evaluate.variations=",
    ),
    "ilql_quickstart": (
        *CLONE, "collect.transcripts=60", "train_values.num_epochs=1", "train_values.games=4", "decoding.betas=0,4",
        "evaluate.episodes=4",
    ),
}  # fmt: skip


@pytest.mark.tiny
@pytest.mark.slow
@pytest.mark.parametrize("config", QUICKSTARTS)
def test_a_quickstart_ends_with_a_page(config, launch, tmp_path):
    flags = [f"--config.{value}" for value in QUICKSTARTS[config]]
    launch(f"--config={config}", f"--workdir={tmp_path}", *flags, status=0)
    assert "<h1" in (tmp_path / "report/index.html").read_text()
