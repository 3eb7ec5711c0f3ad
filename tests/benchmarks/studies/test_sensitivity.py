"""Which settings move a figure: by a model whose images depend on guidance alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Done, manifest, plait
from guided import Painter
from report_helpers import Judge
from scipy import stats

from plait.benchmarks.runs.config import RunConfig, VariantConfig, load_config
from plait.benchmarks.runs.resolving import with_variant
from plait.benchmarks.studies.sensitivity import (
    correct_together,
    design_of,
    effect_of,
    parse_levels,
)
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models

pytestmark = pytest.mark.contract
SYSTEM = "guided:Painter@t2i"
SCORER = "guided:Brightness"
N = 10


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "prompts.txt"
    file.write_text("".join(f"picture {i} of a house\n" for i in range(N)))
    return file


def sensitivity(prompts: Path, place: Path, *words: str, name: str = SYSTEM) -> Done:
    given = ("--data", f"prompts:{prompts}", "--scorer", SCORER, "--out", str(place))
    return plait("sensitivity", name, *given, "--executor", "local", *words)


LEVELS = ("--guidance", "2,3,6", "--steps", "20,50", "--size", "16,32x48", "--seeds", "2")


@pytest.fixture(scope="module")
def finished(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished") / "run"
    done = sensitivity(prompts, place, *LEVELS)
    assert done.returncode == 0, done.stderr
    return place


def test_guidance_is_found_and_nothing_else(finished: Path) -> None:
    found = json.loads((finished / "sensitivity.json").read_text())
    (scorer,) = found["scorers"]
    factors = {one["factor"]: one for one in scorer["factors"]}
    assert {name: one["moves"] for name, one in factors.items()} == {
        "guidance": True,
        "steps": False,
        "size": False,
        "seed": False,
    }
    assert factors["guidance"]["reference"] == "2"
    for name in ("steps", "size", "seed"):
        assert factors[name]["range"] == pytest.approx(0.0)
        (level,) = factors[name]["levels"]
        assert (level["above"], level["below"]) == (0, 0)


def test_differences_are_those_by_hand(finished: Path, prompts: Path) -> None:
    found = json.loads((finished / "sensitivity.json").read_text())
    (guidance, *_) = found["scorers"][0]["factors"]
    texts = prompts.read_text().splitlines()

    def scores(guided: float) -> np.ndarray:
        greys = [Painter(guided)._grey(text).mean() for text in texts]
        return np.array(greys) / 2.55

    means = [scores(2.0).mean()]
    for level in guidance["levels"]:
        own = scores(float(level["level"]))
        difference = own - scores(2.0)
        means.append(own.mean())
        assert level["mean"]["value"] == pytest.approx(own.mean(), abs=1e-5)
        assert level["difference"]["value"] == pytest.approx(difference.mean(), abs=1e-5)
        # On so wide a scale the interval is all but Student's t of the differences.
        t = stats.t.interval(0.95, N - 1, difference.mean(), stats.sem(difference))
        assert level["difference"]["ci95"] == pytest.approx(t, abs=0.3)
        assert (level["above"], level["below"]) == (N, 0)
    assert guidance["range"] == pytest.approx(max(means) - min(means), abs=1e-5)


def test_the_same_command_resumes_and_makes_nothing(finished: Path, prompts: Path) -> None:
    done = sensitivity(prompts, finished, *LEVELS)
    assert done.returncode == 0, done.stderr
    assert "; 0 records made" in done.stdout


def test_a_run_of_variants_is_read_like_any_other(finished: Path) -> None:
    board = json.loads((finished / "leaderboard.json").read_text())
    assert {row["system"] for row in board} == {
        SYSTEM,
        f"{SYSTEM} guidance=3",
        f"{SYSTEM} guidance=6",
        f"{SYSTEM} steps=50",
        f"{SYSTEM} size=32x48",
    }
    for words in (("report",), ("cite",), ("verify",)):
        done = plait(*words, str(finished))
        assert done.returncode == 0, done.stderr


def test_variants_are_opened_from_records_and_forgotten(
    prompts: Path, tmp_path: Path
) -> None:
    place = tmp_path / "run"
    words = ("--guidance", "2,3", "--limit", "3", "--seeds", "1")
    assert sensitivity(prompts, place, *words).returncode == 0
    shutil.rmtree(place / "results")
    before = (place / "leaderboard.json").read_text()
    done = plait("report", str(place))
    assert done.returncode == 0, done.stderr
    assert (place / "leaderboard.json").read_text() == before
    done = plait("forget", str(place), "--system", f"{SYSTEM} guidance=3")
    assert done.returncode == 0, done.stderr
    assert manifest(place)["config"].get("variants", {}) == {}
    (row,) = json.loads((place / "leaderboard.json").read_text())
    assert row["system"] == SYSTEM


def test_a_dry_run_tells_what_it_takes_and_writes_nothing(
    prompts: Path, tmp_path: Path
) -> None:
    done = sensitivity(prompts, tmp_path / "run", *LEVELS, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Painter" in done.stdout
    assert not (tmp_path / "run").exists()


def test_a_dry_run_names_weights_that_are_not_here(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    done = sensitivity(prompts, tmp_path / "run", "--dry-run", name="sd3.5-medium")
    assert done.returncode == 2
    assert "not in the Hub cache: stabilityai" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--steps", "0"), "--steps '0' is not valid"),
        (("--steps", "2.5"), "a whole number"),
        (("--guidance", "nan"), "--guidance 'nan' is not valid"),
        (("--guidance", "-1"), "a number from 0"),
        (("--size", "512x"), "--size '512x' is not valid"),
        (("--size", "big"), "SIDE or WIDTHxHEIGHT"),
        (("--system", "gt"), "leave out --system"),
    ],
)
def test_wrong_levels_are_refused(
    prompts: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = sensitivity(prompts, tmp_path / "run", *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_what_is_to_be_drawn_must_be_named() -> None:
    done = plait("sensitivity", "sdxl")
    assert done.returncode == 2
    assert "--data" in done.stderr
    done = plait("sensitivity", "geneval2/2O26")
    assert "did you mean 'geneval2/2026'" in done.stderr


# ----------------------------------------------------------------------------- design


def config_of(*systems: str, **changes: object) -> RunConfig:
    flags = {"systems": systems, "data": "sample", "weights": "dummy", **changes}
    return load_config(None, flags)


def test_default_levels_lie_around_the_reference() -> None:
    design = design_of(config_of("sdxl@t2i"), {}, None)
    assert design.reference == {"guidance": "5", "steps": "50", "size": "1024"}
    assert {(level.factor, level.text) for level in design.levels.values()} == {
        ("guidance", "2.5"),
        ("guidance", "7.5"),
        ("steps", "25"),
        ("steps", "100"),
        ("size", "512"),
    }
    assert design.config.repeats == 2
    assert not design.remarks


def test_levels_lie_around_those_of_a_pinned_protocol() -> None:
    config = config_of(data="geneval2:here", systems=(), pinned="geneval2/2026")
    design = design_of(config, {"steps": parse_levels("steps", "10,40")}, 1)
    assert design.reference == {"guidance": "1", "steps": "40", "size": "512"}
    assert [level.text for level in design.levels.values()] == ["10", "256"]
    assert design.remarks == (
        "guidance is not varied around 1; give levels with --guidance",
    )


def test_levels_that_tiny_weights_draw_alike_are_left_out() -> None:
    config = config_of("sdxl@t2i", weights="tiny")
    design = design_of(config, {"steps": parse_levels("steps", "1,20,50")}, 1)
    steps = [one.text for one in design.levels.values() if one.factor == "steps"]
    assert steps == ["1"]
    assert len(design.remarks) == 2


def test_a_native_model_is_varied_in_what_it_has() -> None:
    config = config_of("janus-pro-1b@t2i")
    design = design_of(config, {"guidance": parse_levels("guidance", "1,5,9")}, 1)
    assert [level.text for level in design.levels.values()] == ["1", "9"]
    assert design.reference["guidance"] == "5"


def test_a_composed_system_is_varied_in_the_model_that_draws() -> None:
    design = design_of(config_of("qwen2-vl-7b+flux@outline"), {}, 1)
    assert design.model == "flux"
    assert all({*v.models} == {"flux"} for v in design.config.variants.values())


@pytest.mark.parametrize("systems", [("gt", "anole"), ("gt",), ("qwen2-vl-7b@text",)])
def test_one_system_that_draws_is_varied(systems: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        design_of(config_of(*systems), {}, None)


def test_a_level_that_the_model_refuses_is_refused() -> None:
    with pytest.raises(UsageError, match="multiple of 16"):
        design_of(config_of("sdxl@t2i"), {"size": parse_levels("size", "500")}, 1)


def test_a_variant_has_its_own_settings_over_those_of_the_config() -> None:
    variants = {"slow": VariantConfig(system="sdxl@t2i", models={"sdxl": {"steps": 90}})}
    config = config_of("sdxl@t2i", "slow").model_copy(update={"variants": variants})
    models = Models(weights="dummy", overrides={"sdxl": {"steps": 9, "guidance": 2.0}})
    name, own = with_variant("slow", config, models)
    assert name == "sdxl@t2i"
    assert own.of("sdxl") == {"steps": 90, "guidance": 2.0}
    assert with_variant("sdxl@t2i", config, models) == ("sdxl@t2i", models)


# --------------------------------------------------------------------------- verdicts


def test_levels_are_corrected_together() -> None:
    rng = np.random.default_rng(3)
    base = rng.random(12)
    # One level raises every score by as much, two others change nothing on average.
    columns = {
        "20": base + 1.0,
        "30": base + rng.choice([-0.01, 0.01], 12),
        "40": np.full(12, np.nan),
    }
    factor = effect_of("steps", "9", base, columns, Judge(scale="0-6"))
    (corrected,) = correct_together([factor])
    moving, chance, nothing = corrected.levels
    assert moving.p == 2 / 2**12
    assert moving.adjusted == 2 * moving.p, "two levels were compared"
    assert (moving.moves, chance.moves, nothing.moves) == (True, False, None)
    assert corrected.moves is True
    assert (nothing.p, nothing.adjusted) == (None, None)
