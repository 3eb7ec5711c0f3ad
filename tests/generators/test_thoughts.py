"""Thoughts are told from replies, whatever marks a family of models gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.generators.thoughts import (
    Reply,
    begins_thought,
    holds_thought,
    is_mark,
    opens_thought,
    separate,
)

THOUGHT = "First I would say A. Score: 2"
REPLY = "C is right.\nScore: 6"
SEPARATED = Reply(REPLY, THOUGHT)

MARKED = {
    "think": f"<think>\n{THOUGHT}\n</think>\n\n{REPLY}",
    "capitals": f"<THINK>{THOUGHT}</THINK>{REPLY}",
    "thinking": f"<thinking>{THOUGHT}</thinking>{REPLY}",
    "thought": f"<thought>{THOUGHT}</thought>\n{REPLY}",
    "reasoning": f"<reasoning>{THOUGHT}</reasoning>\n{REPLY}",
    "seed": f"<seed:think>{THOUGHT}</seed:think>{REPLY}",
    "magistral": f"[THINK]{THOUGHT}[/THINK]{REPLY}",
    "kimi": f"\u25c1think\u25b7{THOUGHT}\u25c1/think\u25b7{REPLY}",
    "open thinker": f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|>"
    f"<|begin_of_solution|>{REPLY}<|end_of_solution|>",
    "command a": f"<|START_THINKING|>{THOUGHT}<|END_THINKING|>"
    f"<|START_RESPONSE|>{REPLY}<|END_RESPONSE|>",
    "command a plus": f"{THOUGHT}<|END_THINKING|><|START_TEXT|>{REPLY}<|END_TEXT|>",
    "hunyuan": f"<think:release>{THOUGHT}</think:release>\n<answer>{REPLY}</answer>",
    "minimax m3": f"<mm:think>{THOUGHT}</mm:think>{REPLY}",
    "longcat": f"<longcat_think>{THOUGHT}</longcat_think>{REPLY}",
    "k2 horizon": f"<ifm|think_fast>{THOUGHT}</ifm|think_fast>{REPLY}",
    "pangu": f"[unused16]{THOUGHT}[unused17]{REPLY}",
    "apertus": f"<|inner_prefix|>{THOUGHT}<|inner_suffix|>{REPLY}",
    "solar": f"{THOUGHT}<|think:end|>{REPLY}",
    "kimi k3": f"<|open|>think<|sep|>{THOUGHT}<|close|>think<|sep|>"
    f"<|open|>response<|sep|>{REPLY}<|close|>response<|sep|><|close|>message<|sep|>",
    "inkling": f"<|message_model|><|content_thinking|>{THOUGHT}<|end_message|>"
    f"<|message_model|><|content_text|>{REPLY}<|end_message|><|content_model_end_sampling|>",
    "medgemma": f"<unused94>thought\n{THOUGHT}<unused95>{REPLY}",
    "gemma": f"<|channel>thought\n{THOUGHT}<channel|>{REPLY}",
    "granite": f"Here is my thought process:\n{THOUGHT}\nHere is my response:\n{REPLY}",
    "apriel": f"Here are my reasoning steps:\n{THOUGHT}\n[BEGIN FINAL RESPONSE]\n{REPLY}\n"
    "[END FINAL RESPONSE]",
    "harmony without tokens": f"analysis{THOUGHT}assistantfinal{REPLY}",
    "answer wrapped": f"<think>{THOUGHT}</think>\n<answer>\n{REPLY}\n</answer>\n",
    "response wrapped": f"<think>{THOUGHT}</think>\n<response>{REPLY}</response>",
    "wrapper cut": f"<think>{THOUGHT}</think>\n<answer>{REPLY}",
    "byte order mark": f"\ufeff<think>{THOUGHT}</think>{REPLY}",
    "two thoughts": f"<think></think>\n<think>{THOUGHT}</think>\n{REPLY}",
    "pipes": f"<|thinking|>{THOUGHT}<|/thinking|>{REPLY}",
    "thoughts": f"<thoughts>{THOUGHT}</thoughts>{REPLY}",
    "scratchpad": f"<scratchpad>\n{THOUGHT}\n</scratchpad>\n{REPLY}",
    "thought process": f"<thought_process>{THOUGHT}</thought_process>{REPLY}",
    "closed by another name": f"<think>{THOUGHT}</thinking>{REPLY}",
    "after a token of the template": "<|im_start|>assistant\n"
    f"<think>{THOUGHT}</think>{REPLY}",
    "after a token of the beginning": f"<s>[THINK]{THOUGHT}[/THINK]{REPLY}",
    "opened after one of the prompt": f"</think><think>{THOUGHT}</think>{REPLY}",
    "never opened": f"{THOUGHT}\n</think>\n\n{REPLY}",
    "never opened, kimi": f"{THOUGHT}\u25c1/think\u25b7{REPLY}",
    "never opened, magistral": f"{THOUGHT}[/THINK]{REPLY}",
}


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED.keys())
def test_a_thought_is_no_part_of_the_reply(text):
    assert separate(text) == SEPARATED
    assert holds_thought(text)


def test_channels_of_harmony():
    begin, start = "<|channel|>analysis<|message|>", "<|start|>assistant"
    final = f"{start}<|channel|>final<|message|>"
    separated = separate(f"{begin}{THOUGHT}<|end|>{final}{REPLY}<|return|>")
    assert separated.text == REPLY
    assert THOUGHT in separated.thought
    twice = f"{begin}One.<|end|>{start}{begin}Two.<|end|>{final}{REPLY}"
    assert separate(twice).text == REPLY
    assert separate(f"<|channel|>final<|message|>{REPLY}<|return|>") == Reply(REPLY)
    assert separate(f"{begin}{THOUGHT}").unfinished
    form = "<|channel|>final <|constrain|>json<|message|>"
    assert separate(f"{begin}{THOUGHT}<|end|>{start}{form}{{}}").text == "{}"
    for words in (f"analysis\n{THOUGHT}\nassistantfinal\n{REPLY}", f"</think>{REPLY}"):
        assert separate(words).text == REPLY


@pytest.mark.parametrize(
    "thought",
    [
        'It says "a cat"',
        "I end with `</think>`. Score: 2",
        'I begin with "<think>" and end with "</think>". So A',
        "They say \u201ca cat\u201d",
    ],
)
def test_a_thought_may_quote_its_marks_and_end_with_a_quotation(thought):
    assert separate(f"<think>{thought}</think>{REPLY}") == Reply(REPLY, thought)
    if "think>" not in thought:
        assert separate(f"{thought}</think>{REPLY}") == Reply(REPLY, thought)


def test_a_reply_may_end_inside_a_second_thought():
    assert separate("</think>\n<think>Perhaps A").unfinished


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{THOUGHT}",
        f"[THINK]{THOUGHT}",
        f"\u25c1think\u25b7{THOUGHT}",
        f"<think></think><think>{THOUGHT}",
        f"analysis{THOUGHT}",
    ],
)
def test_a_reply_may_end_inside_its_thought(text):
    assert separate(text) == Reply("", THOUGHT, unfinished=True)


@pytest.mark.parametrize(
    "text",
    [
        REPLY,
        "",
        "Models write <think>...</think> before they reply.",
        "The mark `</think>` ends a thought.",
        'It ends with "</think>" as a rule.',
        "```\nreply.split('x')\nmark = </think>\n```\nSo it is done.",
        "`<think>` begins a thought.",
        "Here is my thought process: I like A. Score: 5",
        "analysis of the image: fine",
        "I think [it is C].",
    ],
)
def test_marks_that_are_mentioned_stay(text):
    assert separate(text) == Reply(text)
    assert not holds_thought(text)


def test_only_the_first_closing_mark_ends_a_thought_that_was_never_opened():
    assert separate("One.</think>Two.</think>Three.") == Reply("Two.</think>Three.", "One.")


def test_marks_inside_a_thought():
    nested = "<think>One <think>two</think> three</think>Four"
    assert separate(nested) == Reply("Four", "One <think>two</think> three")
    mentioned = "<think>What does <think> mean?</think>A thought."
    assert separate(mentioned) == Reply("A thought.", "What does <think> mean?")


def test_an_empty_thought_leaves_the_reply_alone():
    assert separate(f"<think>\n\n</think>\n\n{REPLY}") == Reply(REPLY)
    assert holds_thought(f"<think>\n\n</think>\n\n{REPLY}")


def test_what_is_wrapped_more_than_once_is_no_one_reply():
    several = "<answer>A</answer> or <answer>B</answer>"
    assert separate(f"<think>{THOUGHT}</think>{several}") == Reply(several, THOUGHT)


def test_a_thought_that_was_never_opened_may_mention_its_mark():
    thought = "I end with `</think>` and then reply."
    assert separate(f"{thought}</think>{REPLY}") == Reply(REPLY, thought)


def test_a_prompt_may_open_the_thought():
    assert opens_thought("<|im_start|>assistant\n<think>\n")
    assert not opens_thought("<|im_start|>assistant\n")
    assert not opens_thought("What does <think> mean? <|assistant|>")
    assert separate(THOUGHT, opened=True) == Reply("", THOUGHT, unfinished=True)
    assert separate(f"{THOUGHT}</think>{REPLY}", opened=True) == SEPARATED


def test_a_thought_may_take_the_place_of_a_reply():
    assert separate(f"<think>{THOUGHT}").loss != separate(f"<think>{THOUGHT}</think>").loss
    assert separate(f"<think>{THOUGHT}</think> ").loss
    assert [separate(text).loss for text in (MARKED["think"], REPLY, "")] == [None] * 3


def test_beginnings():
    assert begins_thought(MARKED["kimi"])
    assert not begins_thought(MARKED["never opened"])


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("[THINK]", True),
        ("[/THINK]", True),
        ("\u25c1/think\u25b7", True),
        ("<think>", True),
        ("<|channel|>", True),
        ("<|message|>", True),
        ("<|START_THINKING|>", True),
        ("<|channel>", True),
        ("<unused94>", True),
        ("<|sep|>", True),
        ("<|im_end|>", False),
        ("<s>", False),
        ("[INST]", False),
        ("<|image_pad|>", False),
    ],
)
def test_tokens_that_are_marks(token, expected):
    assert is_mark(token) is expected


MARKS = ["<think>", "</think>", "[THINK]", "[/THINK]", "`", "\n```\n", "a", " ", "<answer>"]


@given(st.lists(st.sampled_from(MARKS)).map("".join), st.booleans())
def test_what_is_separated_was_written(text, opened):
    separated = separate(text, opened=opened)
    assert separated.text in text
    assert not (separated.unfinished and separated.text)
