"""Scorers that ask an LVLM, mostly about images: how likely is the right answer?

A scorer is `PREFIX:LVLM`. All use the records of one stage, the log-probabilities of the
possible answers to one question behind what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from plait.scorers.vqa.criteria import CriteriaScorer
from plait.scorers.vqa.dpg import DpgScorer
from plait.scorers.vqa.geneval2 import GenEval2Scorer
from plait.scorers.vqa.questions import QuestionScorer, VqaScorer

VQA: Mapping[str, type[QuestionScorer]] = {
    "vqascore": VqaScorer,
    "geneval2": GenEval2Scorer,
    "dpg": DpgScorer,
    "criteria-probability": CriteriaScorer,
}
"""Prefix of a scorer's name -> its class."""
