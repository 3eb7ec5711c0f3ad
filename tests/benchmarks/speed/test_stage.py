"""`plait bench stage` by its command, on tiny models and a server."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from endpoint_helpers import Answer, completion, serving
from paths import CHECKOUT

from plait.benchmarks.speed import device
from plait.benchmarks.speed.command import main
from plait.benchmarks.speed.figures import STREAMED
from plait.benchmarks.speed.report import same
from plait.benchmarks.speed.rounds import (
    Variant,
    load_timed,
    measure,
    upstream_loop,
    variants_of,
)
from plait.benchmarks.speed.workload import of_scorer, of_system
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models

pytestmark = [pytest.mark.slow, pytest.mark.models]

TINY = Models(weights="tiny")


@pytest.fixture(autouse=True)
def rates(monkeypatch):
    """The machine's own rates are measured in `test_figures`."""
    monkeypatch.setattr(device, "_CPU_COPY_BYTES", 2**20)
    monkeypatch.setattr(device, "_median_s", lambda statement, **names: 0.001)


def measured(out, *words, status=0):
    """The JSON of two queries at the batch sizes 1 and 2, in one round."""
    size = ("--batches", "1,2", "--queries", "2", "--rounds", "1", "--weights", "tiny")
    assert main([*size, *words, "--out", str(out)]) == status
    return json.loads(out.read_text())


@pytest.mark.models
def test_an_image_stage_is_measured_at_every_batch_size(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")  # no heading is broken, however long the numbers
    out = tmp_path / "speeds.json"
    words = ["sdxl-turbo", "--part", "render", "--price-per-hour", "3"]
    written = measured(out, *words, "--out", str(tmp_path / "folder"))
    about, speeds = written["about"], written["speeds"]
    assert [(s["way"], s["batch_size"]) for s in speeds] == [
        ("upstream batch 1", None),
        ("batch 1", 1),
        ("upstream batch 2", None),
        ("batch 2", 2),
    ]
    for beside, own in (speeds[:2], speeds[2:]):
        assert beside["ratio"] is None
        assert own["ratio"] == beside["seconds"][0] / own["seconds"][0]
        assert own["same_answers"] == 2
    for speed in speeds:
        figures, absent, seconds = speed["figures"], speed["absent"], speed["seconds"][0]
        assert speed["usage"]["images"] == speed["records"] == 2
        assert speed["failures"] == {}
        assert min(speed["weight_bytes"], speed["flops"], speed["parameters"]) > 0
        assert speed["seconds_per_input"] == pytest.approx(seconds / 2)
        assert figures["image_throughput"]["value"] == pytest.approx(2 / seconds)
        assert figures["cost_per_1000_images"]["value"] == pytest.approx(
            3 / 3600 * seconds / 2 * 1000
        )
        assert figures["denoise_step_latency"]["n"] > 0
        assert {"time_to_first_token", "compile_time"} <= absent.keys()
        assert not figures.keys() & absent.keys()
    spec, _ = of_system("sdxl-turbo", "render", TINY, 1)
    assert about["spec"] == {
        "name": spec.name,
        "kind": "render",
        "identity": "stabilityai/sdxl-turbo",
        "weights": "tiny",
        "settings": dict(spec.settings),
    }
    assert about["command"][-2:] == ["--out", str(out)]
    pages = sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert pages == ["sdxl-turbo-tiny.json", "sdxl-turbo-tiny.md"]
    page = (tmp_path / "folder" / pages[1]).read_text()
    for text in (page, capsys.readouterr().out):
        assert "request_latency p99" in text
        assert "not measured: time_to_first_token" in text
        assert "x upstream" in text


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("anole", ["draft.max_images=1", "draft.max_text_tokens=8"]),
        ("qwen2-vl-7b", ["max_new_tokens=8"]),
    ],
)
def test_text_stages_have_token_times(name, short, tmp_path):
    words = [name, "--no-upstream", *(f"--set={setting}" for setting in short)]
    written = measured(tmp_path / "speed.json", *words)
    for speed in written["speeds"]:
        figures, usage = speed["figures"], speed["usage"]
        first, between = (
            figures[n] for n in ("time_to_first_token", "inter_token_latency")
        )
        assert first["n"] == 2, "one per request"
        if name != "anole":  # whose closing token of an image is not counted as written
            assert first["n"] + between["n"] == usage["output_tokens"]
        assert 0 < first["mean"] < figures["request_latency"]["mean"]
        spent = first["mean"] + between["mean"] * between["n"] / 2
        assert spent < 1000 * sum(speed["seconds"])


@pytest.mark.models
def test_a_judge_is_measured_beside_the_official_loop(tmp_path):
    words = ("--scorer", "judge:mmie-score", "--set", "max_new_tokens=16")
    written = measured(tmp_path / "speed.json", *words)
    upstream, one, two = written["speeds"]
    assert [upstream["way"], one["way"], two["way"]] == ["upstream", "batch 1", "batch 2"]
    assert upstream["ratio"] is None
    assert one["ratio"] == pytest.approx(upstream["seconds"][0] / one["seconds"][0])
    assert [s["same_answers"] for s in (upstream, one, two)] == [2, 2, 2]
    assert "time_to_first_token" in one["figures"]
    assert "time_to_first_token" in upstream["absent"]


@pytest.mark.models
def test_loadgen_runs_the_same_stage(tmp_path):
    pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")
    scenarios = ("--scenario", "offline", "--scenario", "single-stream")
    words = ("--scorer", "clipscore", "--min-duration", "0.5", *scenarios)
    written = measured(tmp_path / "speed.json", *words, "--out", str(tmp_path / "a.md"))
    offline, single = written["loadgen"]
    assert (offline["batch_size"], single["batch_size"]) == (2, 1)
    assert offline["failures"] == single["failures"] == 0
    assert offline["figures"]["Samples per second"] > 0
    assert "| offline | Samples per second |" in (tmp_path / "a.md").read_text()


def test_a_server_is_timed_by_request_and_hides_its_device(tmp_path):
    out, hold = tmp_path / "server.json", 0.05
    with serving() as server:
        server.script = lambda body: Answer(completion("a square"), hold_s=hold)
        words = ["openai:parrot", "--set", f"base_url={server.url}", "--rounds", "2"]
        written = measured(out, *words, "--queries", "4")
    for speed in written["speeds"]:
        figures, absent = speed["figures"], speed["absent"]
        assert figures["request_latency"]["n"] == 8
        assert figures["request_latency"]["min"] >= hold * 1000
        assert figures["output_token_throughput"]["value"] > 0
        assert absent["time_to_first_token"] == STREAMED
        assert {"peak_memory", "model_flops", "load_time"} <= absent.keys()
        assert speed["peak_memory_gib"] is speed["fraction_of_bandwidth"] is None
    assert sum(written["speeds"][0]["seconds"]) > 2 * 4 * hold
    # The default kind of weights is of models that this process loads.
    assert written["about"]["weights"] is None


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((native, "draft") for native in ("anole", "gill", "minigpt5")),
        ("emu2", "condition"),
        ("janus-pro-1b", "condition"),
        ("qwen2-vl-7b", "draft"),
    ],
)
def test_upstream_loops_say_the_same_as_the_batched_stage(name, part, monkeypatch):
    """In float32, from the same random numbers: equal text and equal payloads."""
    greedy = {"janus-pro-1b": {"image_greedy": True}}  # whose samples are of a global state
    spec, inputs = of_system(name, part, replace(TINY, overrides=greedy), 2)
    stage, _ = load_timed(spec, [2])
    loop, batched = upstream_loop(spec, stage), stage(inputs)
    assert sum(outcome.usage["output_tokens"] for outcome in batched) > 0
    monkeypatch.setattr(Streams, "step", None)  # which is plait's way of decoding
    pairs = zip(loop(inputs), batched, strict=True)
    assert all(same(one.value, other.value) for one, other in pairs)
    variants = variants_of(stage, [1, 3], loop, eager=True)
    first = 3 if name.startswith(("qwen", "janus")) else 1
    assert [variant.size for variant in variants] == [first, 1, 1, 3, 3]


@pytest.mark.models
def test_the_pipeline_of_diffusers_is_called_with_the_texts():
    spec, inputs = of_system("sdxl-turbo", "render", TINY, 2)
    stage, _ = load_timed(spec, [2])
    scheduler = stage.drawer.pipeline.scheduler
    loop = upstream_loop(spec, stage)
    assert (loop.plain.encoder, stage.plain.encoder is None) == (None, False)
    assert stage.drawer.pipeline.scheduler is scheduler
    assert "set_timesteps" in vars(scheduler), "its timesteps stay on the host"
    assert "set_timesteps" not in vars(loop.plain.pipeline.scheduler)
    assert loop.plain.pipeline.unet is stage.plain.pipeline.unet
    encoded = []
    stage.plain.pipeline.text_encoder.register_forward_pre_hook(
        lambda _, given: encoded.append(len(given[0]))
    )
    measure([Variant("batch 2", stage, 2)], inputs, 2, stage=stage)
    passes = 1 + 2 + 1
    assert sum(encoded) == passes * len(inputs), "each round encodes what it draws"


@pytest.mark.models
def test_a_later_stage_is_measured_on_what_the_earlier_ones_give():
    spec, inputs = of_system("anole", "render", TINY, 4)
    assert spec.name == "anole-render"
    assert len(inputs) >= 2
    assert all(i.payload is not None and i.payload.data for i in inputs)


@pytest.mark.models
@pytest.mark.parametrize("name", ["judge:mmie-score", "judge:qwen2-vl-7b", "clipscore"])
def test_scorers_are_measured_on_the_ground_truth_and_controls(name):
    _, inputs = of_scorer(name, "tiny", {}, 2)
    _, several = of_scorer(name, "tiny", {}, 2, answers=3)
    images = [given for given in inputs if isinstance(given, Image)]  # of what embeds them
    if name != "clipscore":
        images = [image for request in inputs for image in request.images]
    assert len(images) >= 2
    assert all(image.data for image in images)
    if name != "clipscore":  # which is not asked about the control without images
        assert [several[0], several[3]] == list(inputs), "query by query"
        assert len({str(request) for request in several}) == 6


def test_wrong_use_is_named():
    assert main(["anole", "--scorer", "clipscore"]) == 2
    assert main([]) == 2
    with pytest.raises(UsageError, match=r"part of system 'anole' 'condition'.*draft, ren"):
        of_system("anole", "condition", TINY, 1)
    with pytest.raises(UsageError, match=r"--batches '1,x'"):
        main(["anole", "--batches", "1,x"])
    compiled = Models(weights="tiny", overrides={"sdxl-turbo": {"compile": True}})
    spec, _ = of_system("sdxl-turbo", "render", compiled, 1)
    with pytest.raises(UsageError, match="compiled stage has one batch size"):
        load_timed(spec, [1, 2])


@pytest.mark.models
@pytest.mark.slow
def test_it_runs_where_ray_is_not_installed():
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "sys.argv = 'plait bench stage anole --weights tiny --batches 1 --queries 1 "
        "--rounds 1 --no-upstream --set draft.max_images=1'.split()\n"
        "import plait.cli; sys.exit(plait.cli.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"batch 1" in done.stdout
