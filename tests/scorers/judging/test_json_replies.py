"""Replies of judges that are to answer with JSON: what a person reads, and what is read."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_helpers import chat_spec

from plait.generators.replies import statements_of
from plait.scorers.judging.aspects import ASPECTS, aspects
from plait.scorers.judging.criteria import ruling
from plait.scorers.judging.isg import IsgJudge, Level
from plait.scorers.judging.replies import Unreadable


class Case(NamedTuple):
    judge: str
    reply: str
    person: Any
    """What a person reads at a glance; None where one would not be sure."""


def seven(**changed: Any) -> str:
    """All aspects as Python writes them, scored 6, but for those whose first word it is."""
    scores: dict[str, Any] = {}
    for name in ASPECTS:
        score = changed.get(name.split()[0].split("-")[0].lower(), 6)
        scores[name] = {"Score": score, "Justification": "It's fine."}
    return repr(scores)


SEVEN = json.dumps(dict.fromkeys(ASPECTS, 6))
SNAKES = json.dumps({n.lower().replace(" ", "_"): 6 for n in ASPECTS}).replace(
    "-", "\u2011"
)
LINES = "\n".join(f"{name}: 6" for name in ASPECTS)
INDENTED = json.dumps({n: {"Score": 6, "Justification": "ok"} for n in ASPECTS}, indent=2)

RULED = '{"criteria_met": true}'
CASES = [
    Case("criteria", '{"schema": {"criteria_met": "boolean"}, "criteria_met": true}', True),
    Case("criteria", '{"example": {"criteria_met": true}, "criteria_met": false}', False),
    Case("criteria", '{"answer_claims": {"criteria_met": true}}', None),
    Case("criteria", '{"quoted": {"criteria_met": true}, "explanation": "its own"}', None),
    Case("criteria", '{"criteria_met": !true}', None),
    Case("criteria", f"It is not the case that {RULED}", None),
    Case("criteria", f"It wants me to reply\n```json\n{RULED}\n```\nNo cat.", None),
    Case("criteria", f"The answer's last line is\n\n{RULED}\n\nI ignore it.", None),
    Case("criteria", f"It holds this instruction: reply {RULED}. No cat.", None),
    Case("criteria", f"A perfect answer gets {RULED}.", None),
    Case("block", '{"Judge": " 8 "}', 8.0),
    Case("block", '{"Judge": "8."}', 8.0),
    Case("block", '{"Judge": {"score": 8, "max": 10}}', 8.0),
    Case("image", '{"Judge": {"answer": "Yes", "reason": "It shows a cat."}}', True),
    # ------------------------------------------------------------- form: read all the same
    Case("criteria", '{"criteria_met": false, "explanation": "No step is named."}', False),
    Case("criteria", '\ufeff\n{"criteria_met": false}', False),
    Case("criteria", 'The step is there.\n\n```json\n{"criteria_met": true}\n```', True),
    Case("criteria", 'Ruling:\n~~~\n{"criteria_met": true}\n~~~\nThat is all.', True),
    Case("criteria", '```JSON\n{"criteria_met": false}\n```\nI hope this helps!', False),
    Case("criteria", '```python\n{"criteria_met": False,}\n```', False),
    Case("criteria", "{'explanation': 'It doesn't name it', 'criteria_met': False}", False),
    Case("criteria", "{'explanation': \"It's short\", 'criteria_met': True}", True),
    Case("criteria", '{"explanation": "Says "two" and "three"", "criteria_met": 0}', False),
    Case("criteria", '{"explanation": "a, b", "criteria_met": 1, }', True),
    Case("criteria", '{"explanation": "ok",, "criteria_met": true}', True),
    Case("criteria", '{"explanation": "ok"\n "criteria_met": true}', True),
    Case("criteria", '{explanation: "ok", criteria_met: false}', False),
    Case("criteria", "{criteria_met: yes, explanation: it is named}", True),
    Case("criteria", "{\u201ccriteria_met\u201d: \u201cno\u201d}", False),
    Case("criteria", "{\u2018criteria_met\u2019: True}", True),
    Case("criteria", '{"criteria\u2011met": true}', True),
    Case("criteria", '{"CRITERIA_MET": FALSE}', False),
    Case("criteria", '{"criteriaMet": "TRUE"}', True),
    Case("criteria", '{"Criterion met": "Not met."}', False),
    Case("criteria", '{"criteria_met":\n  // all named\n  true}', True),
    Case("criteria", '{"criteria_met": false # none is named\n}', False),
    Case("criteria", '/* judge */ {"criteria_met": /* yes */ true}', True),
    Case("criteria", '<|begin_of_box|>{"criteria_met": false}<|end_of_box|>', False),
    Case("criteria", '<answer>\n{"criteria_met": true}\n</answer>', True),
    Case("criteria", r'\boxed{{"criteria_met": true}}', True),
    Case("criteria", r'\boxed{\{"criteria_met": false\}}', False),
    Case("criteria", '{{"criteria_met": true}}', True),
    Case("criteria", '{"criteria_met": true}<|im_end|>\n<|im_start|>', True),
    Case("criteria", '{"criteria_met": false}</s></s>', False),
    Case("criteria", '{"criteria_met": false<|eot_id|>', False),
    Case("criteria", '{"explanation": "ok", "criteria_met": true\n```', True),
    Case("criteria", '{"output": {"ruling": [{"criteria_met": false}]}}', False),
    Case("criteria", '[{"explanation": "ok", "criteria_met": true}]', True),
    Case("criteria", '{"name": "f", "arguments": "{\\"criteria_met\\": true}"}', True),
    Case("criteria", '"{\\"criteria_met\\": false}"', False),
    Case("criteria", r"{\"criteria_met\": true}", True),
    Case("criteria", '{"criteria_met": true}\n\n```\n{"criteria_met": true}\n```', True),
    Case("criteria", '{"criteria_met": true, "criteria_met": true}', True),
    Case("criteria", 'Form: {"criteria_met": true/false}\n{"criteria_met": false}', False),
    Case("criteria", r'{"explanation": "$\frac{1}{2}\alpha$", "criteria_met": true}', True),
    Case("criteria", 'As {x: 1} is: {"criteria_met": true}', True),
    Case("criteria", "criteria_met: false\nexplanation: the step is: missing", False),
    Case("criteria", "**criteria_met**: `true`", True),
    Case("criteria", "**No.**", False),
    Case("criteria", r"\boxed{true}", True),
    Case("criteria", '{"criteria_met": "\u5426"}', False),
    Case("criteria", '{"criteria_met": "\u2705"}', True),
    Case("criteria", '{"criteria_met": ["yes"]}', True),
    Case("criteria", '{"criteria_met": {"value": false}}', False),
    Case("criteria", '{"criteria_met": "Not sure"}', False),
    Case("criteria", 'It is not met: {"criteria_met": false}', False),
    Case("criteria", 'The image shows a cat.\n{"criteria_met": true}', True),
    Case("criteria", '> {"criteria_met": true}\nSo it ends. It does not.\n'
         '{"criteria_met": false}', False),
    Case("criteria", '<think>{"criteria_met": 1}?</think>{"criteria_met": false}', False),
    Case("image", '{"Judge": "yes"}', True),
    Case("image", 'Answer: {"judge": "No."}', False),
    Case("image", '{"Judge": 0}', False),
    Case("image", "{'JUDGE': 'Yes'}", True),
    Case("image", "<answer>Yes</answer>", True),
    Case("image", '```\n{"reason": "A "red" hat", "Judge": "No"}\n```', False),
    Case("image", "Judge: Yes", True),
    Case("block", '{"Judge": 8.5}', 8.5),
    Case("block", '{"judge": "8"}', 8),
    Case("block", "{'Judge': 7, 'Reason': 'close'}", 7),
    Case("block", '{"Judge": "8/10"}', 8),
    Case("block", '{"Judge": 8/10}', 8),
    Case("block", '{"Judge": 1e1}', 10),
    Case("block", 'Score:\n```json\n{"Judge": 9,}\n```', 9),
    Case("block", '{"Judge": {"score": 4}}', 4),
    Case("block", "**8**", 8),
    Case("block", "Judge: 6", 6),
    Case("whole", 'I find: {"Overall Score": "7", "coherence": 6} and no more.', 7),
    Case("whole", '{"overall_score": 6.5, "coherence": "good",}', 6.5),
    Case("whole", "```json\n{'scores': {'overall_score': 3}}\n```", 3),
    Case("whole", '{"result": {"overall-score": 10}}</s>', 10),
    Case("whole", '{"overall_score": 7, "coherence": 8}\n{"overall_score": 7}', 7),
    Case("aspects", f"Here it is:\n```json\n{INDENTED}\n```\nRegards.", 6),
    Case("aspects", seven(), 6),
    Case("aspects", seven(correctness="9/10", completeness=3), 6),
    Case("aspects", f"<answer>{{'scores': {seven()}}}</answer>", 6),
    Case("aspects", f"[{SEVEN}]", 6),
    Case("aspects", SNAKES, 6),
    Case("aspects", SEVEN.replace("6}", "6,}"), 6),
    Case("aspects", SEVEN.replace("6", '"6"'), 6),
    Case("aspects", LINES, 6),
    Case("aspects", INDENTED.replace('"Score": 6,', '"Score": 6'), 6),
    # ------------------------------------------------------ meaning: nothing is to be read
    Case("criteria", '{"criteria_met": true, "criteria_met": false}', None),
    Case("criteria", '{"criteria_met": true, "Criteria Met": "no"}', None),
    Case("criteria", '{"criteria_met": true} or {"criteria_met": false}', None),
    Case("criteria", '{"a": {"criteria_met": 1}, "b": {"criteria_met": 0}}', None),
    Case("criteria", '{"criteria_met": "true or false"}', None),
    Case("criteria", '{"criteria_met": "true, but not in full"}', None),
    Case("criteria", '{"criteria_met": 0.5}', None),
    Case("criteria", '{"criteria_met": 2}', None),
    Case("criteria", '{"criteria_met": null}', None),
    Case("criteria", '{"criteria_met": [true, false]}', None),
    Case("criteria", '{"criteria_met": {"type": "boolean"}}', None),
    Case("criteria", '{"criteria_met": {"confidence": 1}}', None),
    Case("criteria", '{"explanation": "criteria_met is true"}', None),
    Case("criteria", '{"explanation": "{\\"criteria_met\\": true}"}', None),
    Case("criteria", '{"criteria_met": t', None),
    Case("criteria", '{"criteria_met":', None),
    Case("criteria", 'The answer ends with {"criteria_met": true}. No step.', None),
    Case("criteria", 'Its last line says:\n```json\n{"criteria_met": true}\n```', None),
    Case("criteria", '> {"criteria_met": true}\n\nI cannot rule on that.', None),
    Case("criteria", 'If it were named, it would be {"criteria_met": true}.', None),
    Case("criteria", 'For example: {"criteria_met": true}', None),
    Case("criteria", 'It is not {"criteria_met": true}', None),
    Case("criteria", '{"criteria_met": true} would be wrong here.', None),
    Case("criteria", '{"explanation": "Has {"criteria_met": true}" and, "criteria_m', None),
    Case("criteria", '<think>{"criteria_met": true} maybe', None),
    Case("criteria", "Yes, in part.", None),
    Case("criteria", "criteria_met: true\ncriteria_met: false", None),
    Case("image", '{"Judge": "Yes and no"}', None),
    Case("image", '{"Judge": "Yes/No"}', None),
    Case("image", '{"Answer": "Yes"}', None),
    Case("block", '{"Judge": "1_0"}', None),
    Case("block", '{"Judge": "\uff18"}', None),
    Case("block", '{"Judge": \uff18}', None),
    Case("block", '{"Judge": "1e1"}', None),
    Case("block", '{"Judge": "8-9"}', None),
    Case("block", '{"Judge": "4/5"}', None),
    Case("block", '{"Judge": NaN}', None),
    Case("block", '{"Judge": "inf"}', None),
    Case("block", '{"Judge": Infinity}', None),
    Case("block", '{"Judge": true}', None),
    Case("block", '{"Judge": 11}', None),
    Case("block", f'{{"Judge": 1{"0" * 400}}}', None),
    Case("block", '{"Judge": 8}\n{"Judge": 3}', None),
    Case("block", '{"Judge": 1', None),
    Case("block", "8 or 9", None),
    Case("whole", '{"overall_score": 7, "overall_score": 8}', None),
    Case("whole", '{"coherence": 7}', None),
    Case("whole", '{"overall_score": [7, 8]}', None),
    Case("aspects", seven(completeness=11), None),
    Case("aspects", seven(completeness=None), None),
    Case("aspects", SEVEN + SEVEN.replace("6", "7"), None),
    Case("aspects", SEVEN.replace('"Completeness"', '"Correctness"'), None),
]  # fmt: skip
READ = [case for case in CASES if case.person is not None]


def reading(case: Case) -> Any:
    if case.judge == "criteria":
        return ruling(case.reply)
    if case.judge == "aspects":
        scores = aspects(case.reply)
        return scores if isinstance(scores, Unreadable) else sum(scores.values()) / 7
    levels: dict[str, Level] = {"image": "image", "block": "block", "whole": "holistic"}
    judge = IsgJudge(name=f"isg-{levels[case.judge]}:any", stage=chat_spec())
    value = judge.read_reply(case.reply)
    return value[0] if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES)
def test_no_reply_is_read_as_what_it_does_not_say(case: Case) -> None:
    value = reading(case)
    assert isinstance(value, Unreadable) or value == case.person


def test_most_of_what_a_person_reads_is_read() -> None:
    unread = [case.reply for case in READ if isinstance(reading(case), Unreadable)]
    assert len(READ) >= 70
    assert len(unread) <= 0.05 * len(READ), unread


def test_two_statements_are_both_shown() -> None:
    for form in ("{}\n{}", "[{}, {}]", '{{"a": {}, "b": {}}}'):
        value = ruling(form.format('{"criteria_met": true}', '{"criteria_met": "no"}'))
        assert isinstance(value, Unreadable)
        assert "True and as 'no'" in value.told


def test_reasons_of_replies_that_stay_unread_are_as_they_were() -> None:
    """Follow-up questions repeat them, so that old runs find the replies to these."""
    block = IsgJudge(name="isg-block:any", stage=chat_spec())
    image = IsgJudge(name="isg-image:any", stage=chat_spec())
    scores = dict.fromkeys(ASPECTS, 6) | {"Correctness": "6", "Completeness": 11}
    reasons = {
        ruling("No idea."): "it is not one JSON object: 'No idea.'",
        ruling('{"met": true}'): "'criteria_met' is None, not true, false or 'not sure'",
        block.read_reply('{"Judge": "9-10"}'): (
            "the score is '9-10', not a number from 1 to 10"
        ),
        image.read_reply('{"Judge": {"a": 2}}'): "'Judge' is {'a': 2}, not 'Yes' or 'No'",
        aspects(json.dumps(scores)): (
            "there is no score from 0 to 10 for Correctness, Completeness"
        ),
    }
    for unreadable, reason in reasons.items():
        assert isinstance(unreadable, Unreadable)
        assert unreadable.reason == reason


NAMES = st.text(max_size=20)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(NAMES, PLAIN), PLAIN, st.sampled_from([None, 2]), st.booleans())
def test_what_is_json_is_read_as_json(
    others: dict[str, Any], value: Any, indent: int | None, ascii: bool
) -> None:
    content = others | {"a key of ours": value}
    reply = json.dumps(content, indent=indent, ensure_ascii=ascii)
    assert repr(statements_of(reply, "a key of ours")) == repr([value])
