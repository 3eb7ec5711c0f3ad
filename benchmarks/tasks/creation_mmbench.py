"""Creation-MMBench as a task set: 765 creative requests about images, 51 tasks.

The published TSV has quoted fields, base64 images and one request a row; its columns are
read as `ImageBaseDataset` in vlmeval/dataset/image_base.py of open-compass/VLMEvalKit does.
A model is shown all images, then the question (`ImageBaseDataset.build_prompt`); criteria
are split as `build_prompt` of vlmeval/dataset/creation.py splits them. In the text-only
variant, systems read descriptions instead of the images.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    ValidRow,
    as_asked,
    groups_by_member,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageCache, from_base64
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, brief
from plait.benchmarks.tasks.reading.sources import load_json, load_table, locate
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.generators.system import Variant
from plait.scorers.pairwise.creation import FACTUALITY
from plait.scorers.pairwise.prompts import DESCRIPTION, text_only

_TASKS = {
    "LW": """
story_continue landscape_to_poem historical_story_creation story_novel_creation
prose_writing_scenery art_inspired_prose daily_conversation_creation
children_book_illustration_dialogue_creation
    """,
    "CFW": """
ins_simple_daily_copywriter travel_journal short_video_scripts_for_social_media
social_media_travel_content daily_achievement_show_off
scientific_research_simple_promotion twitter_comment_on_daily_news
personal_event_summaries daily_affairs_inquiries
business_collaborative_email_writing daily_emotional_email_writing
letter_of_complaint daily_invitation_email_writing holiday_card_writing
letter_of_application product_usage_experience_review store_experience_review
public_welfare_activity_participation_initiative
    """,
    "PFW": """
museum_guide_word_creation recipe_infer_and_guide landscape_introduction
drafting_announcements_for_public_spaces floor_plan_renovation_design
teaching_plan nutritional_formulation_of_recipe clothing_match_design
software_engineering_diagram_explanation event_planning_and_venue_arrangement
ui_design_analysis_and_optimization attraction_promotional_words
product_marketing_strategy
script_writing_for_product_advertisement_promotional_video residence_reasoning
scientific_diagram_understanding pulitzer_prize_judge architecture_appreciation
company_team_amuse_broadcast
    """,
    "CMU": """
travel_itinerary_planning_and_recommendations photography_appreciation
meme_explanation advertisement_explanation document_understanding
snapshot_analysis
    """,
}
CATEGORY_OF: Mapping[str, str] = groups_by_member(
    {category: tasks.split() for category, tasks in _TASKS.items()}
)
"""Categories of the 51 tasks: literary, common functional and professional functional
writing, creative multimodal understanding (`creation_mmbench_category_dict` in
vlmeval/dataset/creation.py of open-compass/VLMEvalKit@13c651fa)."""

REQUIRED = ("index", "question", "image", "task_name", "criteria")
_LONGEST_INDEX = 64
"""An `image` this short is the index of another row, whose images it shares."""

NAME = "creation-mmbench"
WRITER = "gpt-4o-1120"
"""Who wrote `reference_answer_by_gpt4o`: GPT-4o of 2024-11-20 (paper section 4.1)."""
DESCRIPTIONS = "descriptions.json"
"""Beside the TSV: what the images of each row show, {index: text}."""
_ANSWER = "reference_answer_by_gpt4o"
_READ = {*REQUIRED, _ANSWER, "image_path"}

Images = tuple[Image, ...] | str
"""Images of a row, or the index of the row whose images it shares."""
Opened = tuple[Mapping[str, str], Images | RowError]
"""A row without its encoded images, and the images or what is wrong with them."""


def load(place: str, cache: Path, *, with_images: bool = True) -> TaskSet:
    """Return the task set at `place`: the TSV, a folder with one, or `hf:ORG/NAME@REV`.

    Images are unpacked once, under `cache`. Raises TaskError where there is no
    readable TSV.

    Without images, systems read descriptions instead: a column `image_description`, or
    the file `descriptions.json` beside the TSV; a row without one is a failure. Judges
    are shown the images.
    """
    found = locate(place, ("*.tsv", DESCRIPTIONS))
    path = _tsv(found.path)
    opened = list(_open(path, ImageCache(cache / NAME)))
    by_index = {row["index"]: images for row, images in opened}
    beside = path.with_name(DESCRIPTIONS)
    texts = load_json(beside, dict, "{index: description}")[0] if beside.is_file() else {}
    descriptions = {str(index): str(text) for index, text in texts.items()}

    def make(value: Opened) -> ValidRow:
        row, images = value
        if isinstance(images, str):
            images = by_index.get(images, images)
        if isinstance(images, RowError):
            raise images
        if isinstance(images, str):
            raise RowError(Rule.NOT_FOUND, f"no row {brief(value[1])} has images to share")
        query = _query(Row(row), images, descriptions)
        if not with_images and not query.metadata.get(DESCRIPTION):
            raise RowError(Rule.MISSING_KEY, f"no {DESCRIPTION} in place of the images")
        answer = row.get(_ANSWER, "")
        return ValidRow(query, {WRITER: Document((Text(answer),))} if answer else {})

    name = NAME if with_images else f"{NAME}-text"
    prompt = as_asked if with_images else describe
    return task_set(
        name, TaskData(place, found, [path]), RowReader(opened, make, _group), prompt=prompt
    )


load_text_only = partial(load, with_images=False)


def describe(sample: Query, variant: Variant) -> tuple[Turn, ...]:
    """Return the question with a description in place of its images."""
    return text_only(sample).turns


def _tsv(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.tsv"))
    if len(files) != 1:
        raise TaskError(f"{path} must hold one .tsv file; it holds {len(files)}")
    return files[0]


def _open(path: Path, cache: ImageCache) -> Iterator[Opened]:
    """Yield the rows of the TSV, with their images put into the cache."""
    for row in load_table(path, REQUIRED, "\t"):
        try:
            images: Images | RowError = images_of(row["image"], cache)
        except RowError as error:
            images = error
        yield {**row, "image": ""}, images


def _group(value: Opened) -> RowGroup:
    index = value[0]["index"] or None
    task = value[0]["task_name"]
    known = (CATEGORY_OF[task], task) if task in CATEGORY_OF else ()
    return RowGroup(index, *known)


def _query(row: Row, images: tuple[Image, ...], descriptions: Mapping[str, str]) -> Query:
    index = row.id("index")
    task = row.text("task_name")
    if task not in CATEGORY_OF:
        raise RowError(Rule.CATEGORY, f"no category has the task {brief(task)}")
    question = row.nonblank_text("question")
    preference, factuality = _criteria(row.text("criteria"))
    about: dict[str, str] = {}
    for name, value in row.values.items():
        if name not in _READ and value:
            about[name] = value
    if factuality:
        about[FACTUALITY] = factuality
    if index in descriptions:
        about[DESCRIPTION] = descriptions[index]
    return Query(
        id=index,
        category=CATEGORY_OF[task],
        field=task,
        turns=(Turn("user", (*images, Text(question))),),
        criteria=preference,
        wants_images=False,
        metadata=about,
    )


def _literal(cell: str) -> Any:
    """Return the Python literal that `cell` holds; None where it holds none."""
    try:
        return ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _criteria(cell: str) -> tuple[str, str]:
    """Return criteria of preference and of visual factuality; the last of a kind counts."""
    criteria = _literal(cell)
    if not isinstance(criteria, dict):
        criteria = {"subjective": cell}
    kinds = {False: "", True: ""}
    for name, text in criteria.items():
        kinds["subjective" in str(name).lower()] = str(text)
    if not kinds[True].strip():
        raise RowError(Rule.MISSING_KEY, f"no subjective criteria in {brief(cell)}")
    return kinds[True], kinds[False]


def images_of(cell: str, cache: ImageCache) -> Images:
    """Return the images of a cell, or the index of the row whose images it shares.

    A cell holds base64, or a Python list of base64 strings. RowError for anything else.
    """
    if not cell:
        raise RowError(Rule.NOT_FOUND, "the row has no image")
    if len(cell) <= _LONGEST_INDEX:
        return cell
    listed = _literal(cell) if cell.startswith("[") else [cell]
    if not listed or not all(isinstance(text, str) for text in listed):
        raise RowError(Rule.WRONG_TYPE, f"image is not a list of strings: {brief(cell)}")
    return tuple(cache.add(from_base64(text, "image")) for text in listed)
