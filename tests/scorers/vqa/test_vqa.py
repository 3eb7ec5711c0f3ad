"""Scorers that ask an LVLM about images: against direct scripts, and their two modes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from vlm_helpers import BLUE, GREEN, RED, picture

from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.architectures import random_weights
from plait.generators.base import NotApplicable, Outcome, Result, Unscored
from plait.generators.document import Document, Image, Query, Score, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.pipelines.systems import Models, answers_spec
from plait.scorers import resolve_scorer
from plait.scorers.base import Scorer
from plait.scorers.judging.sources import MODES
from plait.scorers.vqa.dpg import (
    FIRST_ROW,
    PROPOSITIONS,
    hold_by_ancestors,
    hold_in_order,
)
from plait.scorers.vqa.geneval2 import ATOMS
from plait.scorers.vqa.questions import forms

pytestmark = pytest.mark.models

LVLM = "qwen2-vl-7b"
ATOMS_OF = [
    ["How many cups are in the image?", "one", "count"],
    ["Are the cups red?", "Yes", "attribute"],
    ["Are the cups behind the stones?", "No", "position"],
    ["How many stones are in the image?", "seven", "count"],
]
PROPOSITIONS_OF = [
    [1, [], "entity", "Is there a whale?"],
    [2, [1], "attribute", "Is the whale grey?"],
    [3, [], "entity", "Is there a boat?"],
    [4, [1, 3], "relation", "Is the whale beside the boat?"],
    [5, [4], "relation", "Is the boat on the left?"],
]
QUERY = Query(
    id="cups",
    category="4 atoms",
    field="",
    turns=(Turn("user", (Text("one red cup {} by seven stones"),)),),
    metadata={ATOMS: json.dumps(ATOMS_OF), PROPOSITIONS: json.dumps(PROPOSITIONS_OF)},
)
IMAGES = (RED, GREEN, BLUE, picture(80, 80, 7))
TOLERANCE = 1e-3
"""Relative, of probabilities: sums of four log-probabilities that differ by up to 1e-4."""
STAGES = {size: LocalStages() for size in (1, 16)}


def made(name: str, batch_size: int = 16, **settings: Any) -> Scorer:
    models = Models(weights="tiny", overrides={LVLM: {"batch_size": batch_size}})
    return resolve_scorer(
        f"{name}:{LVLM}", "tiny", settings, answers=partial(answers_spec, models=models)
    )


def judged(
    name: str, *images: Image, batch_size: int = 16, query: Query = QUERY, **settings: Any
) -> Outcome[Score]:
    walk = made(name, batch_size, **settings).judge(query, Document(images))
    return drive(walk, STAGES[batch_size].outcomes)


def value(outcome: Outcome[Score]) -> float:
    assert isinstance(outcome, Result), outcome
    return outcome.value.value


# ------------------------------------------------------------------------ direct scripts


@cache
def model() -> tuple[Any, Any]:
    return random_weights.tiny("Qwen/Qwen2-VL-7B-Instruct")


def logprobs(image: Image, question: str, answer: str) -> list[float]:
    return logprobs_of((image, question), answer)


@cache
def logprobs_of(content: tuple[Image | str, ...], answer: str) -> list[float]:
    """One forward pass over a question and its answer, by transformers alone."""
    network, processor = model()
    parts = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": decode(part)}
        for part in content
    ]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": parts}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    ids = torch.tensor([processor.tokenizer.encode(answer, add_special_tokens=False)])
    start = inputs["input_ids"].shape[1]
    more = (("input_ids", ids), ("attention_mask", torch.ones_like(ids)))
    for name, values in (*more, ("mm_token_type_ids", torch.zeros_like(ids))):
        inputs[name] = torch.cat([inputs[name], values], dim=1)
    with torch.inference_mode():
        logits = network(**inputs).logits[0, start - 1 : -1].float()
    rows = logits.log_softmax(-1)
    return rows.gather(1, ids.T)[:, 0].tolist()  # type: ignore[no-any-return]


def joint(image: Image, question: str, *answers: str) -> float:
    return sum(math.exp(sum(logprobs(image, question, a))) for a in answers)


def vqascore(image: Image) -> float:
    text = "one red cup {} by seven stones"
    asked = f'Does this figure show "{text}"? Please answer Yes or No.'
    own = logprobs(image, asked, "Yes")
    return math.exp(sum(own) / len(own))


def official_atoms(image: Image) -> list[float]:
    """As evaluation.py: first tokens, each as often as it is listed; always yes."""
    yes = ["Yes", "yes", " Yes", " yes"]
    one = ["one", "One", " one", " One", "1", " 1"]
    seven = ["seven", "Seven", " seven", " Seven", "7", " 7"]
    atoms = zip(ATOMS_OF, (one, yes, yes, seven), strict=True)
    asked = ((f"{question} Answer in one word.", right) for (question, *_), right in atoms)
    return [sum(math.exp(logprobs(image, q, a)[0]) for a in right) for q, right in asked]


def corrected_atoms(image: Image) -> list[float]:
    """By whole answers: `one` or `1`, but not `10`; the answer that the data give."""
    asked = [f"{question} Answer in one word." for question, *_ in ATOMS_OF]
    p = partial(joint, image)
    forms = ("one", "One", " one", " One", "1", " 1")
    longer = [f"{space}1{digit}" for space in ("", " ") for digit in range(10)]
    sevens = ("seven", "Seven", " seven", " Seven", "7", " 7")
    beyond = [f"{space}7{digit}" for space in ("", " ") for digit in range(10)]
    return [
        p(asked[0], *forms) - p(asked[0], *longer),
        p(asked[1], "Yes", "yes", " Yes", " yes"),
        p(asked[2], "No", "no", " No", " no"),
        p(asked[3], *sevens) - p(asked[3], *beyond) - p(asked[3], *_words_beyond()),
    ]


def _words_beyond() -> list[str]:
    """Those of `seventeen` and `seventy` that go on after the tokens of `seven`."""
    tokens = model()[1].tokenizer

    def ids(text: str) -> list[int]:
        found: list[int] = tokens.encode(text, add_special_tokens=False)
        return found

    words = [f"{s}{w}" for s in ("", " ") for w in ("seventeen", "Seventeen")]
    words += [f"{s}{w}" for s in ("", " ") for w in ("seventy", "Seventy")]
    starts = [f"{s}{w}" for s in ("", " ") for w in ("seven", "Seven")]
    return [w for w in words if any(ids(w)[: len(ids(s))] == ids(s) for s in starts)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def gmean(values: list[float]) -> float:
    return math.prod(values) ** (1 / len(values))


@pytest.mark.parametrize(("images", "batch_size"), [(IMAGES[:1], 1), (IMAGES[1:3], 16)])
def test_scores_equal_a_direct_script(images: tuple[Image, ...], batch_size: int) -> None:
    def close(expected: float) -> Any:
        return pytest.approx(expected, rel=TOLERANCE)

    score = partial(judged, batch_size=batch_size)
    assert value(score("vqascore", *images)) == close(mean([vqascore(x) for x in images]))
    for mode, atoms_of in (("official", official_atoms), ("corrected", corrected_atoms)):
        atoms = [atoms_of(image) for image in images]
        by_am = score("geneval2", *images, mode=mode, mean="arithmetic")
        by_gm = score("geneval2", *images, mode=mode)
        am, gm = (100 * mean([how(own) for own in atoms]) for how in (mean, gmean))
        assert (value(by_am), value(by_gm)) == (close(am), close(gm))
        assert isinstance(by_gm, Result)
        parts = by_gm.value.parts
        assert (parts["arithmetic"], parts["geometric"]) == (close(am), close(gm))
        assert parts["criteria"] == {
            "count": close(mean([v for own in atoms for v in (own[0], own[3])])),
            "attribute": close(mean([own[1] for own in atoms])),
            "position": close(mean([own[2] for own in atoms])),
        }


def test_a_proposition_holds_where_yes_is_likelier_than_no() -> None:
    outcome = judged("dpg", *IMAGES[:2])
    assert isinstance(outcome, Result)
    for image, said in zip(IMAGES[:2], outcome.value.parts["said"], strict=True):
        for id, _, _, question in PROPOSITIONS_OF:
            asked = f"{question} Please answer Yes or No."
            yes = joint(image, asked, "Yes", "yes", " Yes", " yes")
            no = joint(image, asked, "No", "no", " No", " no")
            assert said[id] is (yes > no)


# ----------------------------------------------------------------------- of given answers


def told(name: str, said: list[list[bool]], query: Query = QUERY, **settings: Any) -> Any:
    """The outcome where each image's questions are answered by yes (0.9) or by no."""
    scorer = made(name, **settings)
    walk = scorer.judge(query, Document(IMAGES[: len(said)]))
    jobs = next(walk)
    replies = [answer for own in said for answer in own]
    outcomes = []
    for job, yes in zip(jobs, replies, strict=True):
        chances = {"Yes": 0.9 if yes else 0.1, "No": 0.1 if yes else 0.9}
        answers = {
            a: AnswerTokens((i,), (math.log(chances.get(a, 1e-9)),))
            for i, a in enumerate(job.input.answers)  # type: ignore[union-attr]
        }
        outcomes.append(Result(Logprobs(answers)))
    with pytest.raises(StopIteration) as stop:
        walk.send(outcomes)
    return stop.value.value


def test_categories_of_dpg_are_officially_those_said_of_the_last_image() -> None:
    """The whale is not there in the first image; nothing that depends on it holds."""
    said = [[False, True, True, True, True], [True, True, False, True, False]]
    corrected, official = (told("dpg", said, mode=m) for m in ("corrected", "official"))
    assert value(corrected) == value(official) == pytest.approx(100 * (1 / 5 + 2 / 5) / 2)
    by_category = (o.value.parts["criteria"] for o in (corrected, official))
    assert list(by_category) == [
        {"entity": 0.5, "attribute": 0.5, "relation": 0.0},
        {"entity": 0.5, "attribute": 1.0, "relation": 0.5},
    ]


def test_the_order_of_propositions_changes_only_the_official_score() -> None:
    on = {3: (2,), 2: (1,), 1: ()}
    said = {3: True, 2: True, 1: False}
    assert hold_in_order(on, said) == {3: True, 2: False, 1: False}
    assert hold_by_ancestors(on, said) == dict.fromkeys(on, False)
    rows = [[id, list(parents), "entity", "Is it?"] for id, parents in on.items()]
    query = replace(QUERY, metadata={PROPOSITIONS: json.dumps(rows)})
    answers = [[True, True, False]]
    official, corrected = (told("dpg", answers, query, mode=m) for m in MODES[::-1])
    assert (value(official), value(corrected)) == (pytest.approx(100 / 3), 0.0)


def test_the_first_row_of_dpg_is_officially_not_read() -> None:
    """What depends on it ends the program's work on the prompt."""
    metadata = {**QUERY.metadata, FIRST_ROW: "1"}
    query = replace(QUERY, metadata=metadata)
    assert value(told("dpg", [[True] * 5], query)) == 100
    assert isinstance(told("dpg", [[True] * 4], query, mode="official"), Unscored)
    free = [[id, [], *rest] for id, _, *rest in PROPOSITIONS_OF]
    query = replace(query, metadata={**metadata, PROPOSITIONS: json.dumps(free)})
    answers = [[True, True, True, False]]
    assert value(told("dpg", answers, query, mode="official")) == 75


# -------------------------------------------------------------------------------- records


@pytest.mark.parametrize("field", ["open", "closed"])
def test_criteria_are_shares_of_yes_and_no(field: str) -> None:
    """About the text, and about the images: of closed questions without the text."""
    lists = {"text_criteria": ["It is short.", "It is true."], "image_criteria": ["Red?"]}
    about = {key: json.dumps(own) for key, own in lists.items()}
    query = replace(QUERY, field=field, metadata=about)
    document = Document((Text("A cup:"), RED))
    walk = made("criteria-probability").judge(query, document)
    outcome = drive(walk, STAGES[16].outcomes)
    assert isinstance(outcome, Result), outcome
    before = ("### Question\none red cup {} by seven stones\n### Answer\n",)
    image = ("Image-0: ", RED, "\n\n")
    texts = ("A cup:\n", *image)

    def share(kind: str, criterion: str) -> float:
        shown = image if (kind, field) == ("image", "closed") else texts
        asked = (
            f"Does the answer meet this criterion about its {kind}, in full? {criterion}"
        )
        content = (*before, *shown, f"{asked}\nPlease answer Yes or No.")
        yes, no = (
            sum(math.exp(sum(logprobs_of(_joined(content), form))) for form in forms(word))
            for word in ("Yes", "No")
        )
        return yes / (yes + no)

    text, drawn = [share("text", c) for c in lists["text_criteria"]], share("image", "Red?")
    parts = outcome.value.parts
    assert parts["probabilities"]["text"] == pytest.approx(text, rel=TOLERANCE)
    assert parts["probabilities"]["image"] == pytest.approx([drawn], rel=TOLERANCE)
    assert outcome.value.value == pytest.approx(50 * (mean(text) + drawn), rel=TOLERANCE)
    assert isinstance(judged("criteria-probability", RED), NotApplicable)


def test_specifications_are_shares_of_the_expected_answer() -> None:
    """Each asked by itself behind question and answer; one expects a no."""
    listed = [
        {"id": 1, "question": "Is it red?", "expected_answer": "Yes", "category": "Colour"},
        {"id": 2, "question": "Is it torn?", "expected_answer": "No", "category": "Whole"},
        {
            "id": 3,
            "question": "Is it a cup?",
            "expected_answer": "Yes",
            "category": "Whole",
        },
    ]
    about = {"specifications": json.dumps(listed), "track": "t2i"}
    query = replace(QUERY, metadata=about)
    document = Document((Text("A cup:"), RED))
    scorer = made("specifications-probability")
    outcome = drive(scorer.judge(query, document), STAGES[16].outcomes)
    assert isinstance(outcome, Result), outcome
    before = ("### Question\none red cup {} by seven stones\n### Answer\n",)
    shown = ("A cup:\n", "Image-0: ", RED, "\n\n")

    def share(row: dict[str, Any]) -> float:
        asked = f"A question about this answer alone: {row['question']}"
        content = (*before, *shown, f"{asked}\nPlease answer Yes or No.")
        yes, no = (
            sum(math.exp(sum(logprobs_of(_joined(content), form))) for form in forms(word))
            for word in ("Yes", "No")
        )
        return (yes if row["expected_answer"] == "Yes" else no) / (yes + no)

    shares = [share(row) for row in listed]
    parts = outcome.value.parts
    assert parts["probabilities"] == pytest.approx(shares, rel=TOLERANCE)
    assert parts["criteria"]["Whole"] == pytest.approx(mean(shares[1:]), rel=TOLERANCE)
    assert outcome.value.value == pytest.approx(100 * mean(shares), rel=TOLERANCE)
    assert scorer.jobs(query) == 3
    assert isinstance(judged("specifications-probability", RED), NotApplicable)


def _joined(content: tuple[Image | str, ...]) -> tuple[Image | str, ...]:
    """Texts side by side as one."""
    parts: list[Image | str] = []
    for part in content:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def test_both_modes_and_means_read_the_same_records() -> None:
    def keys(name: str, query: Query = QUERY, **settings: Any) -> list[str]:
        walk = made(name, **settings).judge(query, Document(IMAGES[:2]))
        return [job.key for job in next(walk)]

    for name in ("geneval2", "dpg"):
        assert keys(name, mode="official") == keys(name, mode="corrected")
    assert keys("geneval2", mean="arithmetic") == keys("geneval2")
    assert len(set(keys("dpg"))) == 10
    # A proposition of DPG in the words of VQAScore is the same question.
    shows = [[1, [], "entity", 'Does this figure show "one red cup {} by seven stones"?']]
    query = replace(QUERY, metadata={PROPOSITIONS: json.dumps(shows)})
    assert keys("dpg", query) == keys("vqascore")


def test_an_answer_that_continues_another_is_counted_within_it() -> None:
    record = Logprobs(
        {
            "Yes": AnswerTokens((1,), (-1.0,)),
            "Yes, it is": AnswerTokens((1, 2), (-1.0, -0.5)),
            "No": AnswerTokens((4,), (-2.0,)),
            "Yes.": AnswerTokens((1, 3), (-1.0, -3.0)),
        }
    )
    whole = math.exp(-1.0)
    assert record.probability(["Yes", "Yes, it is"]) == pytest.approx(whole)
    assert record.probability(["Yes", "No"]) == pytest.approx(whole + math.exp(-2.0))
    rest = record.probability(["Yes", "No"], longer=["Yes.", "Yes, it is"])
    assert rest == pytest.approx(whole * (1 - math.exp(-0.5) - math.exp(-3)) + math.exp(-2))


def test_what_there_is_nothing_to_ask_about_has_no_value() -> None:
    plain = replace(QUERY, metadata={})
    for name in ("geneval2", "dpg"):
        assert isinstance(judged(name, RED, query=plain), NotApplicable)
    for name in ("vqascore", "geneval2", "dpg"):
        assert isinstance(judged(name), Unscored)
        bare = replace(QUERY, wants_images=False)
        assert isinstance(judged(name, RED, query=bare), NotApplicable)
        with pytest.raises(UsageError, match="mood"):
            made(name, mood="official")
    with pytest.raises(UsageError, match="needs"):
        made("vqascore", question="Is it?")
