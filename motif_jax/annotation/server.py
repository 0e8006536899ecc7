"""Backend `server`: any endpoint that speaks OpenAI's chat completions, vLLM's own server among them.

Many questions are in flight at once, never more than was said. `endpoint.py` sees each through refusals, cut
connections and restarts. A question that the server fails at while it answers others is given up and stays unknown;
when the server fails for good, the job stops, and what was answered stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from motif_jax.annotation.annotator import Answer, Incomplete, Question, Sampling
from motif_jax.annotation.endpoint import MODEL, URL, Endpoint, Refused
from motif_jax.annotation.parsing import read_verdict
from motif_jax.annotation.prompts import Message, Prompt
from motif_jax.annotation.verdict_tokens import OPENING, shares, to_answer

GIVEN_UP_IN_A_ROW = 20  # after which the fault is not the questions'
TOP_LOGPROBS = 20  # as many as servers usually allow
SCORED_TOKENS = 4  # the verdict comes within these: "(", "1", ")"
PATH = "/chat/completions"


class Server:
    """A model behind HTTP."""

    def __init__(
        self,
        url: str,
        model: str,
        prompt: Prompt,
        sampling: Sampling | None,
        *,
        key: str = "",
        in_flight: int = 64,
        timeout_s: float = 120.0,
        patience_s: float = 600.0,
        start_s: float = 30.0,
        prefill: bool = False,
        extra: dict[str, Any] | None = None,
    ):
        """Looks whether the server is there and has the model.

        Args:
          url: where the API is, for example http://127.0.0.1:8000/v1.
          model: a name that the server knows; "" for the only one it has.
          prompt: the question.
          sampling: how the analysis is written; None: mode score.
          key: sent as bearer token; it is never printed or stored.
          in_flight: questions at a time.
          timeout_s: for one reply.
          patience_s: how long to go on while nothing succeeds.
          start_s: the same, for the first contact.
          prefill: mode score: put "(" into the model's mouth, as vLLM's server allows.
          extra: more fields of the request; None takes one away.
        """
        self._endpoint = Endpoint(url, key, timeout_s, patience_s)
        self._prompt, self._sampling = prompt, sampling
        self._in_flight, self._prefill, self._extra = in_flight, prefill, extra or {}
        self._constrain = True  # the second try, until the server refuses that
        self._given_up_in_a_row = 0
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._endpoint.__aenter__())
            self.model = self._loop.run_until_complete(self._endpoint.find_model(model, start_s))
        except BaseException:
            self.close()
            raise

    def answers(self, questions: Iterable[Question]) -> Iterator[tuple[Question, Answer]]:
        """As they come back. A question is taken when a place in flight is free."""
        source = iter(questions)
        waiting: set[asyncio.Task[tuple[Question, Answer]]] = set()
        try:
            while True:
                while len(waiting) < self._in_flight and (question := next(source, None)) is not None:
                    waiting.add(self._loop.create_task(self._answer(question)))
                if not waiting:
                    return
                first = asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done, waiting = self._loop.run_until_complete(first)
                failures = [error for task in done if (error := task.exception()) is not None]
                yield from (task.result() for task in done if task.exception() is None)
                if failures:
                    raise failures[0]
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                self._loop.run_until_complete(asyncio.wait(waiting))

    def close(self) -> None:
        """Closes the connections."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._endpoint.__aexit__())
            self._loop.close()

    async def _answer(self, question: Question) -> tuple[Question, Answer]:
        messages = self._prompt.messages(question)
        try:
            answer = await (self._score(messages) if self._sampling is None else self._reason(messages))
            self._given_up_in_a_row = 0
        except Refused as refused:
            self._given_up_in_a_row += 1
            if self._given_up_in_a_row >= GIVEN_UP_IN_A_ROW or not self._endpoint.successes:
                raise Incomplete(f"the server refuses the questions: {refused} ({URL}, {MODEL})") from None
            answer = Answer(None, f"the server gave no answer: {refused}")
        return question, answer

    async def _score(self, messages: list[Message]) -> Answer:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": SCORED_TOKENS}
        options |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if self._prefill:
            messages = [*messages, {"role": "assistant", "content": OPENING}]
            options |= {"add_generation_prompt": False, "continue_final_message": True}
        reply = await self._complete(messages, options)
        try:
            places = [
                shares((str(top["token"]), float(top["logprob"])) for top in place["top_logprobs"])
                for place in reply["choices"][0]["logprobs"]["content"]
            ]
        except (KeyError, TypeError, ValueError):
            raise Incomplete(
                "the server gives no log-probabilities, which the mode 'score' needs: use "
                f"--config.annotate.mode=reason ({URL})"
            ) from None
        best: dict[str, float] = {}
        for place in places:  # the first with a verdict, or else the likeliest
            best = max(best, place, key=lambda found: sum(found.values()))
            if sum(best.values()) >= 0.5:
                break
        return to_answer(best, *_tokens(reply))

    async def _reason(self, messages: list[Message]) -> Answer:
        assert self._sampling is not None
        options = self._sampling._asdict()
        del options["top_k"]  # not in the standard; `extra` can add it
        reply = await self._complete(messages, options)
        said = _content(reply)
        answer = Answer(read_verdict(said), said, 1.0, *_tokens(reply))
        if answer.second_better is not None:
            return answer
        again = self._prompt.again(messages, said)
        options |= {"temperature": 0}
        choice = {"structured_outputs": {"choice": self._prompt.verdicts}} if self._constrain else {}
        try:
            reply = await self._complete(again, options | choice)
        except Refused as refused:
            if not choice or refused.status not in (400, 422):
                raise
            self._constrain = False  # an extension of vLLM's, which this server does not take
            reply = await self._complete(again, options)
        text = _content(reply)
        totals = [old + new for old, new in zip(answer[-3:], _tokens(reply), strict=True)]
        return Answer(read_verdict(text), f"{said}\n[asked again] {text}", 1.0, *totals)

    async def _complete(self, messages: list[Message], options: dict[str, Any]) -> dict[str, Any]:
        fields = {"model": self.model, "messages": messages} | options | self._extra
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._endpoint.post(PATH, body, _content)


def _content(reply: dict[str, Any]) -> str:
    content = reply["choices"][0]["message"]["content"]
    return content if isinstance(content, str) else ""  # None where a model has only thought


def _tokens(reply: dict[str, Any]) -> tuple[int, int, int]:
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return _whole(usage.get("prompt_tokens")), _whole(cached), _whole(usage.get("completion_tokens"))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
