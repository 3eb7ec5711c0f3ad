"""`plait bench decoding`: ways in turns on the same requests, and what they answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from endpoint_helpers import Answer, completion, serving
from rich.console import Console

from benchmarks.speed.decoding import command, ways, workload
from benchmarks.speed.decoding.options import DecodingServer
from benchmarks.speed.decoding.rounds import DecodingTimes, as_data, table_of, timed
from benchmarks.speed.decoding.ways import DecodingWay, GenerateStage, spec_of_server
from benchmarks.speed.decoding.workload import requests_of, save_model
from benchmarks.speed.measured import JOBS
from benchmarks.speed.measured_pages import summary
from generators.base import Failure, Outcome, Result
from generators.document import Draft, Request, Text
from generators.errors import UsageError
from generators.loading.packed import PackedLinear
from pipelines.servers import engine
from pipelines.servers.software import Software
from pipelines.vlm.stage import VisionLanguageModel

SMALL_TEXT = {
    "max_position_embeddings": 4096,
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
SMALL_VISION = {"depth": 1, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 2}
ABOUT = {"measured": "a model", "device": "CPU", "packages": {"torch": "2.10"}}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is made and runs at once."""
    monkeypatch.setattr(workload, "_TEXT_SIZE", SMALL_TEXT)
    monkeypatch.setattr(workload, "_VISION_SIZE", SMALL_VISION)
    monkeypatch.setattr(workload, "_MOST_PIXELS", 56 * 56)


def measured(words: Sequence[str]) -> int:
    return command.main(words, Console(width=200))


def speeds_of(path: Path) -> dict[str, dict[str, Any]]:
    return {speed["way"]: speed for speed in json.loads(path.read_text())["ways"]}


def answering(*texts: str | None, tokens: int = 3) -> DecodingWay:
    def answer(requests: Sequence[Request]) -> list[Outcome[Draft]]:
        return [
            Failure("no")
            if text is None
            else Result(Draft((Text(text),)), {"output_tokens": tokens})
            for text in texts[: len(requests)]
        ]

    return DecodingWay("/".join(map(str, texts)), answer)


@pytest.mark.models
@pytest.mark.usefixtures("small")
def test_all_ways_answer_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--requests", "5", "--tokens", "6", "--rounds", "2"]
    outs = [tmp_path / "decoding.json", tmp_path / "decoding.md"]
    assert measured([*words, *(w for out in outs for w in ("--out", str(out)))]) == 0
    speeds = speeds_of(outs[0])
    assert list(speeds) == [
        "generate, batch 5",
        "streams, batch 5",
        "streams, one by one",
    ]
    for speed in speeds.values():
        assert (speed["same_answers"], speed["answers"]) == (10, 10)
        assert len(speed["seconds"]) == 2
        assert 10 < sum(speed["tokens"]) <= 60
        assert speed["ratio_to_server"] is None
    printed = capsys.readouterr().out
    assert "5 requests with pictures, at most 6 tokens, greedy, float32" in printed
    page = outs[1].read_text()
    assert "plait bench decoding --requests 5" in page
    assert "| generate, batch 5 |" in page
    assert "| generate, batch 5 |" in summary(tmp_path, ["decoding"])


@pytest.mark.models
@pytest.mark.usefixtures("small")
def test_generate_runs_the_model_as_transformers_loads_it(tmp_path: Path) -> None:
    save_model(tmp_path)
    settings: dict[str, Any] = {"model": str(tmp_path), "dtype": "float32", "device": "cpu"}
    streams, generate = (kind(**settings) for kind in (VisionLanguageModel, GenerateStage))
    packed = [
        sum(isinstance(module, PackedLinear) for module in stage._model.modules())
        for stage in (streams, generate)
    ]
    # Queries and outputs of the attention, three of the perceptron, the head.
    assert packed == [6, 0]
    assert streams._streamed is not None
    assert generate._streamed is None


@pytest.mark.models
@pytest.mark.usefixtures("small")
def test_a_server_is_asked_the_same_and_measured_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[Any] = []

    def noted(*of: Any) -> Any:
        specs.append(spec_of_server(*of))
        return specs[-1]

    monkeypatch.setattr(ways, "spec_of_server", noted)
    folder, out = tmp_path / "model", tmp_path / "decoding.json"
    words = ["--requests", "3", "--tokens", "4", "--rounds", "1", "--model", str(folder)]
    save_model(folder)
    with serving() as server:
        server.script = lambda body: Answer(completion("something else"), hold_s=0.3)
        assert measured([*words, "--base-url", server.url, "--out", str(out)]) == 0
        asked = [body for body in server.bodies if body["max_tokens"] == 4]
        assert server.most_in_flight > 1
    assert len(specs) == 1, "a server's program is asked for its version only once"
    assert len(asked) == 3 + 3, "to warm up, and in the round"
    assert all(body["temperature"] == 0 for body in asked)
    pictures = [p for p in asked[-1]["messages"][-1]["content"] if p["type"] != "text"]
    assert pictures
    speed = speeds_of(out)["server, 3 in flight"]
    assert (speed["same_answers"], speed["answers"]) == (0, 3)
    assert speed["ratio_to_server"] == 1.0
    streams = speeds_of(out)["streams, batch 3"]
    assert streams["ratio_to_server"] == pytest.approx(
        (streams["tokens"][0] / streams["seconds"][0])
        / (speed["tokens"][0] / speed["seconds"][0])
    )


@pytest.mark.models
@pytest.mark.usefixtures("small")
def test_a_server_that_is_started_gets_the_threads_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path)
    software = Software("vllm", "0.25.0")
    monkeypatch.setattr(engine, "engine_software", lambda *_: software)
    server = DecodingServer(executable=Path("/somewhere/vllm"))
    for threads in (3, 5):
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        spec = spec_of_server(server, tmp_path, tokens=4, in_flight=3)
        assert spec is not None
        assert spec.placement.server is not None
        env = dict(spec.placement.server.env)
        assert env["OMP_NUM_THREADS"] == str(threads)
        assert env["VLLM_CPU_KVCACHE_SPACE"] == "2"


def test_failed_answers_are_counted_and_equal_none() -> None:
    three = [
        answering("a", None, "c"),
        answering("a", None, "x"),
        answering("a", "b", None),
    ]
    rounds = [requests_of(3, seed) for seed in (1, 2)]
    *_, times = timed(three, rounds)
    assert [t.same for t in times] == [4, 2, 2]
    assert [t.failures for t in times] == [2, 2, 2]
    assert times[1].tokens == [6, 6]
    data = as_data(times[1], times)
    assert (data["answers"], data["failures"]) == (6, 2)
    assert "| 2/6 | 2 |" in table_of(times, ABOUT).markdown


def test_ratios_are_medians_of_rounds() -> None:
    one = DecodingTimes("server, 8", seconds=[1.0, 2.0, 4.0], tokens=[8.0, 8.0, 8.0])
    other = DecodingTimes("streams", seconds=[1.0, 1.0, 1.0], tokens=[8.0, 8.0, 8.0])
    assert other.ratio(one) == 2.0
    assert (one.rate, other.rate) == (4.0, 8.0)
    assert as_data(other, [one, other])["ratio_to_server"] == 2.0


def test_requests_are_those_of_their_seed() -> None:
    assert requests_of(4, 1) == requests_of(4, 1)
    both = requests_of(4, 1), requests_of(4, 2)
    digests = [{i.digest for r in requests for i in r.images} for requests in both]
    assert len(digests[0]) == 4
    assert not digests[0] & digests[1], "nothing is remembered from an earlier round"
    assert [len(r.images) for r in both[0]] == [2, 1, 1, 2]


@pytest.mark.parametrize(
    "words",
    [
        ["--base-url", "http://127.0.0.1:1/v1"],
        ["--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--server-executable", "v"],
        ["--out", "figures.csv"],
    ],
)
def test_wrong_use_is_named(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"--base-url needs --model|must end in"):
        measured(words)


def test_only_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    missing = ["--base-url", "http://127.0.0.1:1/v1", "--model", str(tmp_path / "typo")]
    for words in (["--model", str(tmp_path)], missing):
        with pytest.raises(UsageError, match=r"config\.json is not there"):
            measured(words)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.models
@pytest.mark.usefixtures("small")
def test_the_model_is_described_by_its_files(tmp_path: Path) -> None:
    save_model(tmp_path)
    loaded = VisionLanguageModel(model=str(tmp_path), dtype="float32", device="cpu")._model
    count = sum(p.numel() for p in {id(p): p for p in loaded.parameters()}.values())
    assert workload.described(tmp_path) == f"a qwen2_vl of {count / 1e6:.0f} M parameters"


def test_make_bench_takes_it() -> None:
    assert JOBS["decoding"].words[0] == "decoding"
