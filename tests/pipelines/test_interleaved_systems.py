"""Systems named after a server's API: their names, their keys, and whole runs of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drawing_servers import BLUE, RED, serving_pictures, url_of, url_part
from endpoint_helpers import KEY, Answer, completion
from trial import Measuring, as_asked, run, sample

from benchmarks.local import LocalSystem, NoDocument
from cluster.plan import Plan, evaluations
from cluster.store import Store, notes_of, read_blob
from generators.base import Job, Kind, Result
from generators.document import Sample, Text, Turn
from generators.errors import UsageError
from generators.registry import PREFIXES, Named
from generators.system import Repetition, answer
from pipelines.systems import INTERLEAVED, Models, resolve

NAMES = [f"{prefix}:org/model+x@1" for prefix in INTERLEAVED]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving_pictures() as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_drafting_stage_whose_model_is_all_that_follows(name):
    system = resolve(name, Models(weights="pretrained"))
    (stage,) = system.stages
    assert stage.kind is Kind.DRAFT
    assert stage.settings["model"] == "org/model+x@1"
    assert (system.variant, system.tells_modality) == ("interleaved", True)
    assert stage.seeded
    assert stage.weights is None


def test_every_prefix_is_listed_and_has_a_stage_of_its_own():
    assert set(INTERLEAVED) <= set(PREFIXES[Named.SYSTEM])
    specs = [resolve(n, Models(weights="tiny")).stages[0] for n in NAMES]
    assert len({(spec.stage, spec.digest) for spec in specs}) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemini:m+sdxl-turbo", "takes neither a text-to-image model nor a protocol"),
        ("gemini:m@outline", "takes neither a text-to-image model nor a protocol"),
        ("responses:", "names no model; write responses:MODEL"),
        ("chat_images:m", "chat"),
    ],
)
def test_wrong_names_are_explained(name, words):
    with pytest.raises(UsageError, match=words):
        resolve(name, Models(weights="tiny"))


def test_keys_name_the_server_and_what_is_asked_of_it_not_how():
    def digest(**settings):
        models = Models(weights="tiny", overrides={"gemini:m": settings})
        return resolve("gemini:m", models).stages[0].digest

    assert digest() == digest(concurrency=3, price_per_image=1.0, api_version="v1")
    others = [{"image_size": "2K"}, {"base_url": "http://h/x"}, {"temperature": 0.1}]
    assert len({digest(), *(digest(**other) for other in others)}) == 4
    assert digest(base_url="http://a", server="s") == digest(
        base_url="http://b", server="s"
    )


def test_gemini_has_a_key_and_an_address_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other/v1")
    (stage,) = resolve("gemini:m", Models(weights="tiny")).stages
    assert stage.identity == "endpoint:generativelanguage.googleapis.com"
    assert stage.secrets == ("GEMINI_API_KEY",)


def local(server, name="chat-images:parrot", **settings):
    quick = {"base_url": server.url, "max_attempts": 1, **settings}
    return LocalSystem.named(name, weights="tiny", models={name: quick})


def test_a_query_is_answered_with_text_and_pictures(server):
    document = local(server)("Draw a red square.")
    assert [s.text if isinstance(s, Text) else s.digest for s in document.segments] == [
        "first",
        RED.digest,
        "then",
    ]


def test_a_conversation_is_answered_turn_by_turn_with_its_own_pictures(server):
    turns = (
        Turn("user", (Text("draw"),)),
        Turn("assistant", (Text("a published answer"),)),
        Turn("user", (Text("again"),)),
    )
    replies = iter([RED, BLUE])
    server.script = lambda body: Answer(completion([url_part(url_of(next(replies)))]))
    query = Sample(id="s", category="c", field="f", turns=turns)
    (answered,) = local(server).answers([query])
    assert [image.digest for image in answered.document.images] == [RED.digest, BLUE.digest]
    second = server.bodies[1]["messages"]
    assert [m["role"] for m in second] == ["user", "assistant", "user", "user"]
    assert second[2]["content"][0]["image_url"]["url"] == url_of(RED)


def test_a_reply_whose_picture_is_lost_gives_no_document(server):
    server.answering(completion([url_part("https://cdn.example.org/a.png")]))
    with pytest.raises(NoDocument, match="image_hosts"):
        local(server)("draw")


def test_only_systems_that_can_be_told_are_told_that_no_picture_is_wanted():
    query = replace(sample(0), wants_images=False)
    asked: list[Job] = []
    for name in ("gemini:m", "anole"):
        walk = answer(resolve(name, Models(weights="tiny")), query, Repetition(as_asked))
        asked += next(walk)
    modalities = [job.input.modality for job in asked]  # type: ignore[union-attr]
    assert modalities == ["text", None]


@pytest.mark.usefixtures("worker_threads")
def test_a_run_keeps_pictures_and_what_is_known_of_their_order(server, tmp_path: Path):
    server.answering(completion("look", images=[url_part(url_of(RED))]))
    overrides = {"chat-images:parrot": {"base_url": server.url}}
    system = resolve("chat-images:parrot", Models(weights="tiny", overrides=overrides))
    plan = Plan(
        systems=[system],
        samples=[sample(i) for i in range(4)],
        scorers=[Measuring()],
        prompt=as_asked,
        seed=0,
        repeats=1,
    )
    run(plan, tmp_path)
    store = Store(tmp_path)
    for evaluation in evaluations(plan, store):
        document = evaluation.document
        assert isinstance(document, Result)
        assert [read_blob(i) for i in document.value.images] == [RED.data]
    assert len(server.bodies) == 4
    rows = store.rows(system.stages[0])
    assert all("unknown" in notes_of(row)["order"] for row in rows.values())
    written = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert KEY.encode() not in written
