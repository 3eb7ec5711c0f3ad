"""The server's paths.

POST /v1/chat/completions      chats, answered with text and images in order
POST /v1/images/generations    images from prompts
POST /score                    scores of one answer, or of several
GET  /v1/models, /scorers      what is served
GET  /health, /version, /metrics
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from plait.benchmarks.serving.chats import (
    ChatReply,
    query_of,
    refuse_other_sampling,
    token_limit,
)
from plait.benchmarks.serving.drawing import (
    draw,
    images_reply,
    refuse_other_settings,
    seeds_of,
)
from plait.benchmarks.serving.engine import ServingEngine
from plait.benchmarks.serving.gate import RequestGate
from plait.benchmarks.serving.refusals import RequestRefused
from plait.benchmarks.serving.schemas import (
    FORMS,
    ChatRequest,
    ImageGenerationRequest,
    ScoreBatch,
    ScoreBody,
)
from plait.benchmarks.serving.scoring import (
    AskedScore,
    digest_of,
    facts_of,
    read_items,
    scorers_asked,
)
from plait.benchmarks.tasks.published import as_asked
from plait.generators.base import OutcomeName
from plait.generators.system import Repetition

_SHOWN_ERRORS = 3
_LONGEST_SHOWN = 40
"""Characters of a wrong value that is repeated in an error."""
_EXTRA = "Extra inputs are not permitted"
_UNSUPPORTED = "this field is not supported"
_LACKING = {
    "chat": "draws from prompts: use /v1/images/generations",
    "images": "does not draw from prompts: use /v1/chat/completions",
}
"""By ability, what a model without it does, and which path to use."""
routes = APIRouter()


def _engine(request: Request) -> ServingEngine:
    engine: ServingEngine = request.app.state.engine
    return engine


Engine = Annotated[ServingEngine, Depends(_engine)]


def make_app(engine: ServingEngine, *, key: str | None = None) -> FastAPI:
    """Return the server of one engine; it loads when the server starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    # The pages of the documentation would load scripts from another host.
    app = FastAPI(title="plait", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.engine = engine
    app.include_router(routes)
    app.add_middleware(RequestGate, room=engine.room, key=key)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(Exception, _defect)
    return app


@routes.post("/v1/chat/completions")
async def chat(body: ChatRequest, engine: Engine) -> Response:
    """Answer the last turn of a conversation."""
    _require(engine, body.model, "chat")
    system = engine.model.system
    assert system is not None
    engine.refuse_unless_ready()
    query = await asyncio.to_thread(query_of, body, engine.model)
    first = system.stages[0]
    refuse_other_sampling(body, first)
    limit = token_limit(body, first.settings, engine.takes_max_tokens(first))
    seed = secrets.randbelow(2**31) if body.seed is None else body.seed
    repetition = Repetition(as_asked, seed, max_tokens=limit)
    made = await engine.answer(system.reply(query, repetition))
    reply = ChatReply(model=engine.model, made=made, seed=seed, format=body.picture_format)
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(reply.events(usage), media_type="text/event-stream")
    # Images are read and encoded, for which other requests need not wait.
    return JSONResponse(await asyncio.to_thread(lambda: reply.whole))


@routes.post("/v1/images/generations")
async def images(body: ImageGenerationRequest, engine: Engine) -> Response:
    """Draw images from a prompt."""
    _require(engine, body.model, "images")
    stage = engine.model.t2i
    assert stage is not None
    refuse_other_settings(body, stage)
    seeds = seeds_of(body)
    began = time.perf_counter()
    made = await engine.answer(draw(stage, body.prompt, seeds))
    seconds = time.perf_counter() - began
    reply = await asyncio.to_thread(images_reply, engine.model, made, seeds, seconds)
    return JSONResponse(reply)


@routes.post("/score")
async def score(body: Annotated[ScoreBody, Body()], engine: Engine) -> Response:
    """Score one answer, or each of several by itself."""
    scorers = scorers_asked(body, engine.model.scorers)
    engine.refuse_unless_ready()
    asked = await asyncio.to_thread(read_items, body, scorers)
    results = await asyncio.gather(*(_score(one, engine, body.priority) for one in asked))
    if any(result["outcome"] == OutcomeName.FAILED for result in results):
        # What a server that has ended did not compute says nothing about the items.
        engine.refuse_unless_ready()
    for result in results:
        engine.metrics.score(result["scorer"], result["outcome"])
    if isinstance(body, ScoreBatch):
        return JSONResponse({"results": results})
    return JSONResponse(results[0])


async def _score(asked: AskedScore, engine: ServingEngine, priority: int) -> dict[str, Any]:
    with engine.metrics.scoring(asked.scorer.name):
        made = await engine.follow(asked.walk(), priority)
    return asked.reply(made.outcome)


@routes.get("/scorers")
async def list_scorers(engine: Engine) -> dict[str, Any]:
    """List the scorers that are served."""
    cards = [facts_of(scorer) for scorer in engine.model.scorers.values()]
    return {"object": "list", "data": cards}


@routes.get("/v1/models")
async def models(engine: Engine) -> dict[str, Any]:
    """List what is served, under each name that requests may give."""
    cards = [await one_model(name, engine) for name in engine.model.abilities]
    return {"object": "list", "data": cards}


@routes.get("/v1/models/{name:path}")
async def one_model(name: str, engine: Engine) -> dict[str, Any]:
    """Return one entry of the list."""
    model = engine.model
    if name not in model.abilities:
        raise _unknown_model(engine, name)
    about = {"id": name, "object": "model", "created": model.created, "owned_by": "plait"}
    return about | {"capabilities": model.abilities[name], "weights": model.weights}


@routes.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
async def health(engine: Engine) -> Response:
    """Status 200 once requests are answered, else 503."""
    about: dict[str, Any] = {"status": engine.status, "model": engine.model.name}
    if engine.model.scorers:
        about["scorers"] = [*engine.model.scorers]
    if engine.reason:
        about["reason"] = engine.reason
    return JSONResponse(about, 200 if engine.status == "ready" else 503)


@routes.get("/version")
async def version(engine: Engine) -> dict[str, Any]:
    """Return the program's version, and what names the results of the served stages."""
    model = engine.model
    return {
        "version": metadata.version("plait"),
        "engine": "plait",
        "model": model.name,
        "weights": model.weights,
        "stages": {spec.name: spec.digest for spec in model.stages},
        "scorers": {n: digest_of(scorer) for n, scorer in model.scorers.items()},
        "system_fingerprint": model.fingerprint,
    }


@routes.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
async def metrics(engine: Engine) -> Response:
    """Return counts for Prometheus."""
    return PlainTextResponse(engine.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _require(engine: ServingEngine, name: str | None, ability: str) -> None:
    """RequestRefused where the named model is not served, or does something else."""
    abilities = engine.model.abilities
    if not abilities:
        reason = "only scorers are served here: use /score"
        raise RequestRefused("model_not_found", reason, "model")
    if name is not None and name not in abilities:
        raise _unknown_model(engine, name)
    able = abilities[name] if name else {*chain.from_iterable(abilities.values())}
    if ability not in able:
        what = name or engine.model.name
        reason = f"{what} {_LACKING[ability]}"
        raise RequestRefused("unsupported_value", reason, "model")


def _unknown_model(engine: ServingEngine, name: str) -> RequestRefused:
    valid = ", ".join(engine.model.abilities) or "none"
    message = f"the model {name!r} is not served here; valid: {valid}"
    return RequestRefused("model_not_found", message, "model")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if not isinstance(error, RequestRefused):
        codes = {404: "not_found", 405: "method_not_allowed"}
        code = codes.get(error.status_code, "invalid_json")
        error = RequestRefused(code, str(error.detail))
    return error.reply


async def _invalid(request: Request, error: Exception) -> Response:
    """Which fields are wrong and why; their values where they are short."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    kinds = {"json_invalid": "invalid_json", "missing": "missing"}
    code = kinds.get(errors[0]["type"], "invalid_value")
    lines = []
    for error_of_field in errors[:_SHOWN_ERRORS]:
        place = _path_of(error_of_field)
        rule = _rule_of(error_of_field)
        lines.append(f"{place}: {rule}" if place else rule)
    # One value may break the same rule of several forms that a field can have.
    message = "; ".join(dict.fromkeys(lines))
    return RequestRefused(code, message, _path_of(errors[0]) or None).reply


def _path_of(error: Mapping[str, Any]) -> str:
    """Return the field that an error of validation is about; empty for the whole body."""
    # Pydantic also names the form of a body, which is none of its fields, and with brackets
    # the type of a field that may be of several.
    path = []
    for part in map(str, error["loc"]):
        if part not in ("body", *FORMS) and "[" not in part:
            path.append(part)
    return ".".join(path)


def _rule_of(error: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, and the value unless it may be a whole image."""
    message: str = error["msg"]
    rule = message.removeprefix("Value error, ").replace(_EXTRA, _UNSUPPORTED)
    value = error.get("input")
    # Our own rules name what they refuse; of the others the value is not what is wrong.
    told = error["type"] in ("value_error", "extra_forbidden", "json_invalid", "missing")
    if told or not isinstance(value, str | int | float):
        return rule
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return rule
    shown = repr(value)
    return f"{rule}; got {shown}" if len(shown) <= _LONGEST_SHOWN + 2 else rule


async def _defect(request: Request, error: Exception) -> Response:
    """A defect of plait: its traceback is in the server's log."""
    text = f"{type(error).__name__}; see the server's log"
    return RequestRefused("internal_error", text).reply
