"""What stages of offline training do around the loop: hosts, the lock on the folder, the data, the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.devices.hosts import Hosts, Vote, start_hosts
from motif_jax.devices.mesh import make_mesh
from motif_jax.stages.offline.training import Job, Outcome, Pace, train
from motif_jax.structs import UserError
from motif_jax.system.files import write_config
from motif_jax.system.locks import Held, take
from motif_jax.system.meeting import find_meeting
from motif_jax.system.signals import StopAsked
from motif_jax.transcripts.store import Transcripts


class Work(NamedTuple):
    """What a stage trains, and what it makes of it."""

    job: Job
    finish: Callable[[Outcome], None]  # writes the result; called on the first host


def run_offline(
    config: ConfigDict,
    section: ConfigDict,
    folder: Path,
    open_data: Callable[[bool], Transcripts],
    prepare: Callable[[Transcripts, Mesh, Hosts], Work],
) -> None:
    """Trains in `folder`, or resumes an earlier run there.

    Args:
      config: of the experiment.
      section: the stage's, with how long it trains and how often it logs.
      folder: where it writes.
      open_data: (whether this process may make them first, as another host does otherwise) -> the transcripts.
      prepare: makes what is trained.
    """
    with StopAsked() as stop:
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, contextlib.ExitStack() as stack:
            if hosts.me == 0:
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(take(folder / ".lock"))
                except Held as held:
                    raise UserError(f"another run ({held}) is writing to {str(folder)!r} (--workdir)") from None
            transcripts = open_data(True) if hosts.me == 0 else None
            if hosts.count > 1:
                hosts.agree(Vote.GO_ON)
            transcripts = transcripts or open_data(False)
            work = prepare(transcripts, make_mesh(), hosts)
            if hosts.me == 0:
                write_config(folder, config)
            outcome = train(work.job, pace_of(section), hosts, stop)
            if hosts.me == 0:
                work.finish(outcome)


def pace_of(section: ConfigDict) -> Pace:
    """How long a stage trains, and how often it logs and saves."""
    return Pace(section.num_epochs, section.log_every, section.evaluate_every, section.save_every_s,
                section.keep_checkpoints)  # fmt: skip
