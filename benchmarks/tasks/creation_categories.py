"""The 51 tasks of Creation-MMBench by category.

`creation_mmbench_category_dict` in vlmeval/dataset/creation.py of
open-compass/VLMEvalKit@13c651fa.
"""

from __future__ import annotations

from collections.abc import Mapping

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "LW": (
        "story_continue",
        "landscape_to_poem",
        "historical_story_creation",
        "story_novel_creation",
        "prose_writing_scenery",
        "art_inspired_prose",
        "daily_conversation_creation",
        "children_book_illustration_dialogue_creation",
    ),
    "CFW": (
        "ins_simple_daily_copywriter",
        "travel_journal",
        "short_video_scripts_for_social_media",
        "social_media_travel_content",
        "daily_achievement_show_off",
        "scientific_research_simple_promotion",
        "twitter_comment_on_daily_news",
        "personal_event_summaries",
        "daily_affairs_inquiries",
        "business_collaborative_email_writing",
        "daily_emotional_email_writing",
        "letter_of_complaint",
        "daily_invitation_email_writing",
        "holiday_card_writing",
        "letter_of_application",
        "product_usage_experience_review",
        "store_experience_review",
        "public_welfare_activity_participation_initiative",
    ),
    "PFW": (
        "museum_guide_word_creation",
        "recipe_infer_and_guide",
        "landscape_introduction",
        "drafting_announcements_for_public_spaces",
        "floor_plan_renovation_design",
        "teaching_plan",
        "nutritional_formulation_of_recipe",
        "clothing_match_design",
        "software_engineering_diagram_explanation",
        "event_planning_and_venue_arrangement",
        "ui_design_analysis_and_optimization",
        "attraction_promotional_words",
        "product_marketing_strategy",
        "script_writing_for_product_advertisement_promotional_video",
        "residence_reasoning",
        "scientific_diagram_understanding",
        "pulitzer_prize_judge",
        "architecture_appreciation",
        "company_team_amuse_broadcast",
    ),
    "CMU": (
        "travel_itinerary_planning_and_recommendations",
        "photography_appreciation",
        "meme_explanation",
        "advertisement_explanation",
        "document_understanding",
        "snapshot_analysis",
    ),
}
"""Literary, common functional and professional functional writing; creative multimodal
understanding."""

CATEGORY_OF: Mapping[str, str] = {
    task: category for category, tasks in CATEGORIES.items() for task in tasks
}
