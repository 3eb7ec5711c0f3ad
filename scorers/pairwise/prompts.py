"""What judges are asked: the task in our wording, and questions and answers as content.

The verdicts' forms are the protocols'. What stays the same for every pair of answers (task,
question, criteria) comes first, so that a server can keep it from one request to the next.

The text-only variant is Creation-MMBench-TO: systems are asked a sample whose images are
replaced by a description, judges are shown the original one. The two lines around a
description are Figure 30 of the paper's appendix.
"""

from __future__ import annotations

from dataclasses import replace

from generators.content import joined
from generators.document import Content, Document, Image, Sample, Text, Turn

NO_CRITERIA = (
    "No criteria were written for this request. Ask whether an answer does what was "
    "asked for, whether what it says is right and true to the pictures, and whether text "
    "and pictures are well made and belong together."
)

_LEVELS = """[[A>>B]] - A is much better
[[A>B]] - A is somewhat better
[[A=B]] - there is little or nothing between them
[[B>A]] - B is somewhat better
[[B>>A]] - B is much better"""

_FAIR = (
    "Which of the two is shown first is chance and must not count. Length is no merit in "
    "itself. The answers may hold pictures; these are part of the answer and stand where "
    "the answer has them."
)

CREATION = f"""You compare two answers, A and B, to a creative request about pictures. \
Go by the criteria below, and use the pictures to tell what the criteria mean here. {_FAIR}

# Request
{{question}}

# Criteria
{{criteria}}

# Answer A
{{first}}

# Answer B
{{second}}

# Your verdict
Say in a few sentences what each answer does well and badly by the criteria. Then end with \
one line that holds your verdict and nothing else, one of

{_LEVELS}

in exactly this form:
Final Verdict is: [[...]]
"""

_FACTS = f"""You check how true two responses, A and B, are to what the pictures of a \
request show. Go by the criteria below alone, not by style. {_FAIR} Each response is given \
0 to 10 points: every criterion on the top level has the same share of the 10, and its \
sub-criteria share it equally.

# Request
{{question}}

# Criteria of visual factuality
{{criteria}}
"""

_TRUTH = """
# What is true
The responses were written without knowing this:
{truth}
"""

_SCORES = """
# Response A
{first}

# Response B
{second}

# Your scores
Go through the criteria for each response. Then end with two lines in exactly this form, \
with numbers for X and Y:
Response A Visual Factuality Score: X/10
Response B Visual Factuality Score: Y/10
"""

FACTUALITY = _FACTS + _SCORES
FACTUALITY_WITH_TRUTH = _FACTS + _TRUTH + _SCORES

VOTE_FORM = """one of
Answer1
Answer2
unable to decide: situation one
unable to decide: situation two"""
VOTE = f"""You decide which of two answers to a question about a picture is better: the \
one of higher quality that agrees better with the picture. {_FAIR}

You may leave it undecided in two situations only:
- situation one: the question is close-ended, and both answers are right or both wrong;
- situation two: both answers have grave errors of fact or are unethical.
In any other case you choose one.

# Question
{{question}}

# Kind of question
{{type}}
{{criteria}}
# Answer1
{{first}}

# Answer2
{{second}}

# Your vote
End with one line that holds your vote and nothing else, {VOTE_FORM}
"""
VOTE_CRITERIA = """
# Criteria for this question
Judge by these before all else:
{reference}
"""

_DIMENSIONS = """You compare the answers of two assistants, A and B, to a user's request \
that comes with pictures.

First work out for yourself what a good answer would be. Then compare A and B with it and \
with each other by
- correctness: no errors of fact or reasoning, agreement with the pictures;
- helpfulness: it does what was asked for, clearly and so that one can act on it;
- relevance: it keeps to what was asked for;
- conciseness: no more words than the matter needs;
- completeness: nothing that was asked for is missing.
"""
_LANGUAGE = """An answer is to be in the language of the request, unless the request asks \
for another; one that is not is not correct.
"""
_TURNS = """The conversation has several turns, each marked with its number. Judge the \
assistants over all turns together, and whether later answers build on earlier ones.
"""
_ENDING = f"""{_FAIR} Where a request is unclear, asking back can be better than guessing.

The request stands between <inst/> and </inst>, the answer of A between <a/> and </a>, \
that of B between <b/> and </b>.

Explain your comparison, and end with exactly one verdict in double brackets:
{_LEVELS}
"""
LIKERT = {
    "singleround": _DIMENSIONS + _ENDING,
    "multi-linguistic": _DIMENSIONS + _LANGUAGE + _ENDING,
    "multi-round": _DIMENSIONS + _TURNS + _ENDING,
}

AGAIN = """This cannot be read: {problem}. Give your judgement again, in exactly this form \
and with nothing before or after it:
{form}"""
"""Asks again after a reply that cannot be read."""
LEVEL_FORM = f"Final Verdict is: [[...]]\nwith one of\n{_LEVELS}"
FORMS = {
    "creation": LEVEL_FORM,
    "probench": LEVEL_FORM,
    "mllm-bench": VOTE_FORM,
}
"""Form of a preference, by protocol."""
FACTUALITY_FORM = """Response A Visual Factuality Score: X/10
Response B Visual Factuality Score: Y/10"""


def spaced(content: Content) -> Content:
    """`content` with every segment on a line of its own."""
    lines: list[Text | Image] = []
    for i, segment in enumerate(content):
        lines += [Text("\n"), segment] if i else [segment]
    return joined(lines)


def as_content(text: str) -> Content:
    """Return one text as content."""
    return (Text(text),)


def texts(content: Content) -> Content:
    """Return the text of `content`, one segment a line, as one segment."""
    return as_content(Document(content).text)


def images_of(content: Content) -> Content:
    """Return the images of `content`."""
    return Document(content).images


def whole(answer: Document) -> Content:
    """Return all of an answer in order, every segment on a line of its own."""
    return spaced(answer.segments)


def user_turns(sample: Sample) -> tuple[Turn, ...]:
    """Return the user's turns."""
    return tuple(t for t in sample.turns if t.role == "user")


def history(sample: Sample) -> Content:
    """Return all turns before the last user turn, each under its speaker's name."""
    last = max(i for i, t in enumerate(sample.turns) if t.role == "user")
    segments: list[Content] = []
    for turn in sample.turns[:last]:
        who = {"user": "User", "assistant": "Assistant", "system": "System"}[turn.role]
        segments += [as_content(f"{who}:\n"), spaced(turn.content), (Text("\n\n"),)]
    return joined(s for content in segments for s in content)


DESCRIPTION = "image_description"
"""Metadata of a sample: what its images show."""
_BEFORE = (
    "This question does not provide images, only descriptions of images by a large "
    "language model. Please answer based on the descriptions.\n"
    "Description of the image: "
)


def text_only(sample: Sample, description: str | None = None) -> Sample:
    """`sample` without images and with `description` after its last user turn's text.

    The default is the description in the sample's metadata. Raises
    ValueError where a sample with images has none.
    """
    if not images_of(sample.question):
        return sample
    description = description or sample.metadata.get(DESCRIPTION)
    if not description:
        raise ValueError(f"sample {sample.id!r} has pictures and no {DESCRIPTION!r}")
    last = max(i for i, t in enumerate(sample.turns) if t.role == "user")
    turns = [
        _described(t, description if i == last else "") for i, t in enumerate(sample.turns)
    ]
    return replace(sample, turns=tuple(turns))


def _described(turn: Turn, description: str) -> Turn:
    text = spaced(tuple(s for s in turn.content if isinstance(s, Text)))
    added = f"\n{_BEFORE}{description}" if description else ""
    return Turn(turn.role, joined((*text, Text(added))))
