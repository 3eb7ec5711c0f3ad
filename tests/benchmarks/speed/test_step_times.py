"""Denoising steps against a denoiser that takes a known time."""

from __future__ import annotations

import pytest
from speed_helpers import FakeTime

from benchmarks.speed.instruments.clock import Clock
from benchmarks.speed.instruments.steps import StepTimes
from benchmarks.speed.stage.measure import measure, ways_of
from benchmarks.speed.stage.workload import of_system
from cluster.local import load_stage
from generators.diffusion.drawer import Drawer
from pipelines.systems import Models

ENCODING, STEP, DECODING = 1.0, 0.25, 2.0


@pytest.mark.models
def test_a_step_is_the_denoisers_time_and_nothing_else(monkeypatch) -> None:
    models = Models(weights="tiny", overrides={"sdxl-turbo": {"steps": 3, "guidance": 0.0}})
    workload = of_system("sdxl-turbo", "render", models, 6)
    stage = load_stage(workload.spec)
    time = FakeTime()
    pipeline = stage.drawer.pipeline
    pipeline.text_encoder.register_forward_hook(lambda *_: time.pass_(ENCODING))
    pipeline.unet.register_forward_hook(lambda *_: time.pass_(STEP))
    decode = pipeline.vae.decode

    def decoded(*values, **named):
        time.pass_(DECODING)
        return decode(*values, **named)

    monkeypatch.setattr(pipeline.vae, "decode", decoded)
    arguments = stage.drawer.arguments
    ways = ways_of(workload.spec, stage, [1, 3], upstream=False)
    one, three = measure(ways, workload.inputs[:3], 2, Clock(time))
    steps = arguments["num_inference_steps"]
    assert steps > 1
    assert one.timings.steps == [STEP] * steps * 3 * 2, "steps, pictures, rounds"
    assert three.timings.steps == [STEP] * steps * 2, "one batch of three pictures"
    whole = ENCODING + steps * STEP + DECODING
    assert one.timings.requests == [whole] * 3 * 2
    assert three.timings.requests == [whole] * 3 * 2, "each waits for its batch"
    assert (one.seconds, three.seconds) == ([3 * whole] * 2, [whole] * 2)
    assert one.timings.warm_up == 3 * whole
    assert one.pictures == three.pictures
    assert len(one.pictures) == 3
    assert stage.drawer.arguments is arguments
    assert "progress_bar" not in vars(pipeline)


def test_a_pipeline_without_the_callback_is_named() -> None:
    class Plain:
        def __call__(self, prompt: str) -> str:
            return prompt

    class Fake(Drawer):
        def __init__(self) -> None:
            self.pipeline, self.arguments = Plain(), {}

    steps = StepTimes(Clock(FakeTime()))
    with steps._observed(Fake()):
        pass
    assert steps.reason == "Plain takes no callback_on_step_end"
    assert steps.seconds == []
