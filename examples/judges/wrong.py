"""Rules that err on purpose: how good must a judge be before an agent learns from it? See docs/judges.md.

    --config.annotate.backend=examples.judges.wrong:ByQuestion --config.annotate.model=0.25   a quarter of the questions
    --config.annotate.backend=examples.judges.wrong:ByCaption --config.annotate.model=0.25    a quarter of the messages

ByQuestion turns the answers to this share of the questions; with 0.5 the labels say nothing. ByCaption gives this share
of the messages the worth that a rule drawn at random has, in all their questions: an error that more questions do not
average out. Ties of equal worth stay ties. Which questions or messages are meant depends on the seed.
"""

import hashlib

from motif_jax.annotation.annotator import QuestionAnswer
from motif_jax.annotation.backends import CaptionBackend, Lexicon
from motif_jax.envs.texts import preference
from motif_jax.structs import UserError


def draw(*words):
    """A number from 0 to 1 that depends on the words alone."""
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, words)).encode(), digest_size=6).digest()) / 2**48


class ByQuestion(CaptionBackend):
    """Rules whose answers to a share of the questions are turned."""

    is_model, weights = False, ""

    def metadata(self):
        return {"goal": self.section.goal, "share": self.section.model, "seed": self.seed}

    def check(self):
        try:
            share = float(self.section.model)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UserError(f"the share of errors is from 0 to 1, not {self.section.model!r} (--config.annotate.model)")

    def open(self):
        return self

    model = ""  # nothing is known once it is opened that the metadata lacks

    def answers(self, questions):
        rules = Lexicon(self.texts, self.section.goal)
        for question in filter(None, questions):
            yield question, self.answer(rules, float(self.section.model), question)

    def answer(self, rules, share, question):
        right = rules.answer(question).yes
        turned = draw(self.seed, *sorted([question.first, question.second or ""])) < share
        return QuestionAnswer(1 - right if turned else right)

    def close(self):
        pass


class ByCaption(ByQuestion):
    """Rules that mistake the worth of a share of the messages."""

    def answer(self, rules, share, question):
        worths = [rule.worth_to(self.section.goal) for rule in self.texts.rules().rules]

        def worth(text):
            if text and draw(self.seed, text) < share:
                return worths[int(draw("worth", self.seed, text) * len(worths))]
            return rules.worth(text)[0]

        return QuestionAnswer(preference(worth(question.second or "") - worth(question.first), None))
