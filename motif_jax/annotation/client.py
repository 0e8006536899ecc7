"""A judge behind an OpenAI-compatible URL, such as vLLM's server, by chat completions.

At most `in_flight` questions are in flight. system/http.py repeats each one after failures, cut connections and
restarts. A question that keeps failing while others succeed is given up, unless the server says that it is busy, and
its answer stays unknown. When the server fails for good, the job stops and keeps its answers.

Requests run in the event loop of system/http.py, on another thread.

    python -m motif_jax.annotation.client URL MODEL     status 0 if the server has the model (launch/slurm/oni.sbatch)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict
from typing import Any

from motif_jax.annotation.annotator import Draws, Incomplete, Question, QuestionAnswer
from motif_jax.annotation.prompts import OPENING, Message, QuestionTemplate, to_answer, verdict_probabilities
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.console import clean, print_line
from motif_jax.structs import UserError
from motif_jax.system.http import NO_ACCESS, Down, Failed, HttpClient, Refused

URL, MODEL, KEY = "--config.annotate.server.url", "--config.annotate.model", "--config.annotate.server.key_variable"
PATIENCE = "--config.annotate.server.patience_s"
START = "--config.annotate.server.start_s"
LOOK_EVERY_S = 0.25  # between attempts to reach a server that is starting
LOAD_S, ANSWER_S = 1800.0, 30.0  # of waiting at the start: for a server that may be loading its model; for any other
LOADING = (502, 503, 504)  # of llama.cpp's server, and of a proxy, while a model is loaded; vLLM's port is closed
LONGEST_NAME = 300  # characters; models with longer names are not used
GIVEN_UP_IN_A_ROW = 20  # questions; then the job stops, because the server is at fault
ROUNDING = 0.01  # a log-probability may exceed 0 by this
MAX_SAID = 2**16  # characters kept of an answer (start and end); the verdict is parsed from the whole text
PATH, NO_ANSWER = "/chat/completions", "the server gave no answer"
Tokens = tuple[int, int, int]  # of the prompt, of these cached, written
Reply = tuple[str, Any, Tokens]  # text, log-probabilities (not checked), tokens


class ChatClient:
    """An annotator that asks a model over HTTP."""

    def __init__(
        self, server: ServerSection, model: str, prompt: QuestionTemplate, sampling: SamplingSection | None,
        key: str = "",
    ):  # fmt: skip
        """Checks that the server answers and has the model ("": it has exactly one).

        `sampling`: of the analysis; None: mode score. `key`: the bearer token; it is never printed or stored.
        """
        self._http = HttpClient(server.url, URL, server.timeout_s, server.patience_s, key, KEY)
        self._server, self._prompt, self._sampling = server, prompt, sampling
        self._extra = json.loads(server.extra or "{}")  # further fields of the request; None removes a field
        self._constrain = True  # use structured outputs when asking again, until the server refuses them
        self._given_up_in_a_row = 0
        try:
            self.model = self._http.start(find_model(self._http, model, server.start_s)).result()
            assert self._http.loop is not None
            self._loop = self._http.loop  # not that of a later `start`: what is closed stays closed
        except BaseException:
            self.close()
            raise

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        """Yields answers as they arrive, and takes a question while fewer than `in_flight` are in flight.

        At a pause it yields the answers that have arrived, and asks for the next question without waiting.
        """
        draws, failure = Draws(questions), None
        waiting: set[Future[tuple[Question, QuestionAnswer]]] = set()
        try:
            while True:
                paused = False
                while failure is None and len(waiting) < self._server.in_flight and draws.more and not paused:
                    if question := draws.next():
                        waiting.add(asyncio.run_coroutine_threadsafe(self._answer(question), self._loop))
                    else:
                        paused = draws.more
                done, waiting = wait(waiting, 0 if paused or failure else None, FIRST_COMPLETED)
                if not done and not paused:
                    break
                for future in done:
                    if (error := future.exception()) is not None:
                        failure = error  # raised after the other finished answers are yielded
                    else:
                        yield future.result()
            if failure is not None:
                raise failure
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        self._http.close()

    # ---- in the event loop

    async def _answer(self, question: Question) -> tuple[Question, QuestionAnswer]:
        messages = self._prompt.messages(question)
        try:
            answer = await (self._score(messages) if self._sampling is None else self._reason(messages))
            self._given_up_in_a_row = 0
        except Down as down:
            flags = KEY if down.status in NO_ACCESS else f"{URL}, {PATIENCE}"
            raise Incomplete(f"{down} ({flags})") from None
        except Refused as refused:
            self._given_up_in_a_row += 1
            if self._given_up_in_a_row >= GIVEN_UP_IN_A_ROW:
                raise Incomplete(f"the server refuses the questions: {refused} ({URL}, {MODEL})") from None
            answer = QuestionAnswer(None, f"{NO_ANSWER}: {refused}", refused=True)
        return question, answer

    async def _score(self, messages: list[Message]) -> QuestionAnswer:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 4}  # which contain the verdict: "(", "1", ")"
        options |= {"logprobs": True, "top_logprobs": 20}  # the usual limit of servers
        if self._server.prefill:
            messages = [*messages, {"role": "assistant", "content": OPENING}]
            options |= {"add_generation_prompt": False, "continue_final_message": True}
        _, logprobs, tokens = await self._complete(messages, options)
        try:
            positions = [
                verdict_probabilities((top["token"], _logprob(top["logprob"])) for top in token["top_logprobs"])
                for token in logprobs["content"]
            ]
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):  # the last: a token that is not text
            raise Refused(
                0, "its reply has no log-probabilities, which --config.annotate.mode=score needs and reason does not"
            ) from None
        best: dict[str, float] = {}
        for position in positions:  # the first one where verdicts are likely, or else where they are likeliest
            best = max(best, position, key=lambda probabilities: sum(probabilities.values()))
            if sum(best.values()) >= 0.5:
                break
        return to_answer(best, tokens, self._prompt.one)

    async def _reason(self, messages: list[Message]) -> QuestionAnswer:
        assert self._sampling is not None
        options = asdict(self._sampling)
        del options["top_k"]  # not in the standard; `extra` can add it
        answer = self._parsed(*await self._complete(messages, options))
        if answer.yes is not None:
            return answer
        try:
            again = await self._ask_again(self._prompt.again(messages, answer.said), options | {"temperature": 0})
        except Refused as refused:
            return answer.asked_again(QuestionAnswer(None, f"{NO_ANSWER}: {refused}"))._replace(refused=True)
        return answer.asked_again(self._parsed(*again))

    def _parsed(self, text: str, _: Any, tokens: Tokens) -> QuestionAnswer:
        cut = len(text) > MAX_SAID  # the start and the end of one that is far too long
        said = f"{text[: MAX_SAID // 2]} ... {text[-MAX_SAID // 2 :]}" if cut else text
        return QuestionAnswer(self._prompt.read(text), said, 1.0, *tokens)

    async def _ask_again(self, messages: list[Message], options: dict[str, Any]) -> Reply:
        """Asks for a bare verdict, by an extension of vLLM that other servers may refuse."""
        if self._constrain and self._prompt.verdicts:
            try:
                choice = {"structured_outputs": {"choice": self._prompt.verdicts}}
                return await self._complete(messages, options | choice)
            except Refused as refused:
                if refused.status not in (400, 422):
                    raise
        reply = await self._complete(messages, options)
        self._constrain = False  # the server answers without structured outputs
        return reply

    async def _complete(self, messages: list[Message], options: dict[str, Any]) -> Reply:
        fields = {"model": self.model, "messages": messages} | options | self._extra
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._http.until_good(PATH, self._read, json=body)

    def _read(self, reply: dict[str, Any]) -> Reply:
        choice = reply["choices"][0]
        content = choice["message"]["content"]
        # `content` is None if a model wrote only its reasoning. Lone surrogates cannot be written to a file.
        text = content.encode("utf-8", "replace").decode() if isinstance(content, str) else ""
        return self._http.without_key(text), choice.get("logprobs"), _tokens(reply)


async def find_model(http: HttpClient, model: str, start_s: float) -> str:
    """Checks that the server answers, accepts the key and has `model` ("": exactly one); returns its name.

    `start_s`: how long it waits for the server; 0: LOAD_S while a server may be loading its model, otherwise ANSWER_S.
    """
    started, limit_s, said = time.monotonic(), start_s or ANSWER_S, False
    while True:
        try:
            left_s = max(started + limit_s - time.monotonic(), LOOK_EVERY_S)
            reply = await http.attempt("GET", "/models", left_s)
            names = [entry["id"] for entry in reply["data"]]
            break
        except (KeyError, TypeError):
            raise UserError(
                f"{http.url!r} is not an OpenAI-compatible endpoint: it has no list of models ({URL})"
            ) from None
        except Failed as failed:
            if failed.status == 404 and model:
                return model  # this server does not list its models
            if failed.status in NO_ACCESS:
                raise UserError(f"{http.no_access(failed.status)} ({KEY})") from None
            if not start_s and (failed.closed or failed.status in LOADING):
                limit_s = LOAD_S  # also if it then answers nothing for a moment
            if not http.may_change(failed.status) or time.monotonic() > started + limit_s:
                raise UserError(f"the server at {http.url!r} does not answer: {failed} ({URL}, {START})") from None
            if limit_s > ANSWER_S and not said:
                said = True
                print_line(
                    f"the server at {http.url!r} does not answer yet: waits for it up to {limit_s:,g} s ({START})"
                )
        await asyncio.sleep(LOOK_EVERY_S)
    usable = [  # safe to print, record and send
        name
        for name in names
        if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
        if http.without_key(name) == name
    ]
    if model in usable:
        return model
    if not model and len(names) == len(usable) == 1:
        return usable[0]
    what = f"has no model {model!r}" if model else "has several models" if usable else "has no model yet"
    listed = clean(", ".join(usable[:8])) or "none"
    raise UserError(f"the server at {http.url!r} {what}: it has {listed} ({MODEL})")


def _logprob(value: Any) -> float:
    number = float(value)
    if not number <= ROUNDING:  # also NaN
        raise ValueError("it is not a log-probability")
    return min(number, 0.0)


def _tokens(reply: dict[str, Any]) -> Tokens:
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return _count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens"))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0


if __name__ == "__main__":  # whether the server answers within 5 seconds and has the model
    try:
        http = HttpClient(sys.argv[1], URL, 5.0, patience_s=5.0, key=os.environ.get("MOTIF_JAX_API_KEY", ""))
        with contextlib.closing(http):
            http.start(find_model(http, sys.argv[2], start_s=5.0)).result()
    except UserError as error:
        print_line(str(error))
        sys.exit(75)  # EX_TEMPFAIL: try again
