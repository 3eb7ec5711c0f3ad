"""story.html: a run told to a newcomer in five pictures."""
