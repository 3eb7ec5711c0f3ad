"""What BAGEL's images are drawn from, and which settings are refused."""

from __future__ import annotations

from functools import partial

import pytest

from plait.generators.document import Draft, Image, ImageRequest, Query, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.natives import native

NAME = "bagel-7b-mot"
ROOM = Image.of(b"room")
TURNS = (
    Turn("user", (Text("Paint "), Text("it."), ROOM, Text(" \n"))),
    Turn("assistant", (Text("Done."), Image.of(b"painted"))),
    Turn("user", (Text("Now red."),)),
)
query = partial(Query, id="q", category="c", field="f", turns=TURNS)


def test_an_image_is_drawn_from_the_conversation_in_its_order():
    system = native(NAME, "tiny", {})
    text, request = system.compose(Draft((Text("Red."),)), query()).segments
    assert text == Text("Red.")
    said = (Text("Paint it."), ROOM, *TURNS[1].content, Text("Now red."))
    assert request == ImageRequest(context=said)
    (alone,) = system.compose(Draft((Text("Red."),)), query(wants_images=False)).segments
    assert alone == Text("Red.")


def test_an_image_may_be_drawn_from_what_was_written():
    overrides = {"compose": {"drawn_from": "text", "rounds": 2}}
    system = native(NAME, "tiny", overrides)
    request = system.compose(Draft((Text("A red room."),)), query()).segments[1]
    assert request == ImageRequest("A red room.", context=(ROOM,))
    assert (system.limits.rounds, system.limits.images) == (2, 1)


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"compose": {"rounds": 2}}, "drawn_from"),
        ({"cfg_interval": (0.6, 0.4)}, "cfg_interval"),
        ({"cfg_renorm_type": "local"}, "cfg_renorm_type"),
        ({"cfg_text_scale": 0.5}, "cfg_text_scale"),
        ({"num_timesteps": 1}, "num_timesteps"),
        ({"height": 500}, "height"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides, word):
    with pytest.raises(UsageError, match=word):
        native(NAME, "tiny", overrides)


def test_what_changes_an_image_changes_its_key():
    changes = (
        *({"num_timesteps": 24}, {"timestep_shift": 1.0}, {"cfg_text_scale": 4.0}),
        *({"cfg_img_scale": 2.0}, {"cfg_interval": (0.0, 1.0)}, {"cfg_renorm_min": 0.1}),
        *({"cfg_renorm_type": "channel"}, {"think": True}, {"height": 512}, {}),
    )
    systems = [native(NAME, "dummy", change) for change in changes]
    conditions = [system.roles["condition"] for system in systems]
    assert len({stage.digest for stage in conditions if stage}) == len(changes)
    assert all(stage.seeded for stage in conditions if stage)
