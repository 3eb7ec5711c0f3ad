"""The judges' tasks in our wording, and the released ones read from a user's copy.

The verdicts' forms are the protocols'. What stays the same for every pair of answers (task,
question, criteria) comes first, so that a server can keep it from one request to the next.
Released prompts are read as data and never executed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generators.errors import UsageError

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
End with one line that holds your vote and nothing else, one of
Answer1
Answer2
unable to decide: situation one
unable to decide: situation two
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
    "mllm-bench": """one of
Answer1
Answer2
unable to decide: situation one
unable to decide: situation two""",
}
"""Form of a preference, by protocol."""
FACTUALITY_FORM = """Response A Visual Factuality Score: X/10
Response B Visual Factuality Score: Y/10"""

DESCRIBE = """Describe each picture carefully, and say first how many there are. For each: \
what it shows on the whole, what kind of picture it is, who and what is in it, the place \
and the mood, how people and things relate to each other, and any writing in it, word for \
word.
"""
"""Asks for the description that stands for the pictures in a text-only variant."""


def constants(path: Path, inside: str) -> dict[str, Any]:
    """Module-level literals of a Python file by name, as data.

    `path` is the file, or a checkout in which it lies at `inside`. `name[key] = literal`
    is read as an entry of the dictionary `name`; anything that is not a literal is passed
    over. Raises UsageError when there is no such file or it is no Python.
    """
    file = path / inside if path.is_dir() else path
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"official prompts {file}: {error}") from error
    literals: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _assign(literals, node.targets[0], node.value)
    return literals


def _assign(literals: dict[str, Any], target: ast.expr, value: ast.expr) -> None:
    try:
        literal = ast.literal_eval(value)
        if isinstance(target, ast.Name):
            literals[target.id] = literal
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            entries = literals.setdefault(target.value.id, {})
            entries[ast.literal_eval(target.slice)] = literal
    except (ValueError, TypeError):
        return  # Computed when the module runs, and none of our business.


def checked(
    texts: Mapping[str, Any], digests: Mapping[str, str], where: Path
) -> dict[str, str]:
    """The texts named in `digests`; UsageError for one that is not the published one."""
    for name, wanted in digests.items():
        text = texts.get(name)
        if not isinstance(text, str):
            raise UsageError(f"{where} has no prompt {name!r}")
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest != wanted:
            raise UsageError(
                f"prompt {name!r} of {where} is not the published one: its sha256 begins "
                f"with {digest[:12]}, not with {wanted[:12]}"
            )
    return {name: texts[name] for name in digests}
