"""The client of a server for OpenAI's chat completions: finds its models, and decides which failures end a request.

While the server answers other requests, TRIES failures end a request. A server that answers nothing may be restarting,
so failures do not count for RESTART_S; after that, failures count unless their status means that the server is down or
busy.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from motif_jax.annotation.annotator import Incomplete
from motif_jax.console import clean, print_line
from motif_jax.structs import UserError
from motif_jax.system.http import BUSY, Failed, HttpClient

URL, MODEL, KEY = "--config.annotate.server.url", "--config.annotate.model", "--config.annotate.server.key_variable"
LOOK_EVERY_S = 0.25  # between attempts to reach a server that is starting
RESTART_S = 60.0
LONGEST_NAME = 300  # characters; models with longer names are not used


class Refused(Exception):
    """The server will never answer this request."""

    def __init__(self, status: int, problem: str):
        super().__init__(problem)
        self.status = status


class Endpoint(HttpClient):
    """A client that finds the model, and classifies failures as the module docstring says."""

    async def find_model(self, model: str, start_s: float) -> str:
        """Checks that the server answers, accepts the key and has `model` ("": exactly one); returns its name."""
        deadline = time.monotonic() + start_s
        while True:
            try:
                left_s = max(deadline - time.monotonic(), LOOK_EVERY_S)
                reply = await self.attempt("GET", "/models", left_s)
                names = [entry["id"] for entry in reply["data"]]
                break
            except (KeyError, TypeError):
                raise UserError(
                    f"{self.url!r} is not an OpenAI-compatible endpoint: it has no list of models ({URL})"
                ) from None
            except Failed as failed:
                if failed.status == 404 and model:
                    return model  # this server does not list its models
                if failed.status in (401, 403):
                    raise UserError(str(self.refusal(failed, ""))) from None
                if not self.may_change(failed.status):
                    raise UserError(f"the server at {self.url!r} does not list its models: {failed} ({URL})") from None
                if time.monotonic() > deadline:
                    raise UserError(f"the server at {self.url!r} does not answer: {failed} ({URL})") from None
            await asyncio.sleep(LOOK_EVERY_S)
        known = [name for name in names if self._is_name(name)]
        if model in known:
            return model
        if not model and len(names) == len(known) == 1:
            return known[0]
        what = f"has no model {model!r}" if model else "has several models" if known else "has no model yet"
        unusable = f", and {len(names) - len(known)} whose names cannot be used" if len(known) < len(names) else ""
        listed = f"it has {clean(', '.join(known[:8])) or 'none'}{unusable}"
        raise UserError(f"the server at {self.url!r} {what}: {listed} ({MODEL})")

    def _is_name(self, name: Any) -> bool:
        """Whether `name` is safe to print, record and send as the name of a model."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            return False
        return name.isprintable() and self.without_key(name) == name

    def may_change(self, status: int) -> bool:
        """See `HttpClient`; a proxy answers 404 while its server restarts."""
        return super().may_change(status) or (status == 404 and self.successes > 0)

    def counts(self, status: int, served: bool, silent_s: float) -> bool:
        at_request = status not in (0, 404, 502, 504)
        return status not in BUSY and (served or (at_request and silent_s > RESTART_S))

    def refusal(self, failed: Failed, path: str) -> Exception:
        if failed.status not in (401, 403):
            return Refused(failed.status, str(failed))
        sent = "the key was refused" if self._secrets else "it wants a key, and none is set"
        return Incomplete(f"the server at {self.url!r} refuses access: {sent} ({failed.status}; {KEY})")

    def giving_up(self, failed: Failed, silent_s: float, tries: int) -> Exception:
        if silent_s <= self._patience_s:
            return Refused(0, f"{failed} ({tries} times)")
        return Incomplete(
            f"the server at {self.url!r} has answered nothing for {silent_s:.0f} s, last: {failed} "
            f"({URL}, --config.annotate.server.patience_s)"
        )


async def check_server(url: str, model: str) -> None:
    """Raises UserError unless the server answers within 5 seconds and has the model; the key is MOTIF_JAX_API_KEY."""
    endpoint = Endpoint(url, URL, timeout_s=5.0, patience_s=5.0, key=os.environ.get("MOTIF_JAX_API_KEY", ""))
    try:
        await endpoint.find_model(model, start_s=5.0)
    finally:
        await endpoint.disconnect()


if __name__ == "__main__":  # for launch/slurm/oni.sbatch
    try:
        asyncio.run(check_server(*sys.argv[1:]))
    except UserError as error:
        print_line(str(error))
        sys.exit(75)  # EX_TEMPFAIL: try again
