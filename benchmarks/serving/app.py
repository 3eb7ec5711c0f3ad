"""The server's paths.

POST /v1/chat/completions      chats, answered with text and pictures in order
POST /v1/images/generations    pictures from prompts
GET  /v1/models                what is served
GET  /health, /version, /metrics
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import metadata
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from benchmarks.serving.conversation import (
    limited,
    refuse_other_sampling,
    sample_of,
    token_limit,
)
from benchmarks.serving.drawing import (
    images_reply,
    pictures,
    refuse_other_settings,
    seeds_of,
)
from benchmarks.serving.engine import ServingEngine
from benchmarks.serving.gate import RequestGate
from benchmarks.serving.refusals import RequestRefused, unsupported
from benchmarks.serving.replies import ChatReply
from benchmarks.serving.schemas import ChatRequest, ImageGenerationRequest
from benchmarks.tasks.published import as_asked
from generators.system import Repetition, continuation

_SHOWN_ERRORS = 3
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
routes = APIRouter()


def make_app(engine: ServingEngine, *, key: str | None = None) -> FastAPI:
    """The server of one engine; it loads when the server starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    # The pages of the documentation would load scripts from another host.
    app = FastAPI(title="plait", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.engine = engine
    app.include_router(routes)
    app.add_middleware(RequestGate, engine=engine, key=key)
    app.add_exception_handler(RequestRefused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _defect)
    return app


@routes.post("/v1/chat/completions")
async def chat(body: ChatRequest, request: Request) -> Response:
    """Answer the last turn of a conversation."""
    engine = _engine(request)
    _require(engine, body.model, "chat")
    system = engine.model.system
    assert system is not None
    assert system.draft is not None
    admission = engine.admission
    sample = await asyncio.to_thread(sample_of, body, engine.model)
    refuse_other_sampling(body, system.draft)
    takes_limit = engine.takes_max_tokens(system.draft)
    limit = token_limit(body, system.draft.settings, takes_limit)
    seed = secrets.randbelow(2**31) if body.seed is None else body.seed
    walk = limited(continuation(system, sample, Repetition(as_asked, seed)), limit)
    answer = await admission.answer(walk, partial(_departure, request))
    reply = ChatReply(
        model=engine.model,
        document=answer.result.value,
        notes=answer.result.notes,
        usage=answer.usage,
        seed=seed,
        format=body.picture_format,
    )
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(reply.events(usage), media_type="text/event-stream")
    return JSONResponse(await asyncio.to_thread(lambda: reply.whole))


@routes.post("/v1/images/generations")
async def images(body: ImageGenerationRequest, request: Request) -> Response:
    """Draw pictures from a prompt."""
    engine = _engine(request)
    _require(engine, body.model, "images")
    stage = engine.model.artist
    assert stage is not None
    refuse_other_settings(body, stage)
    seeds = seeds_of(body)
    walk = pictures(stage, body.prompt, seeds)
    answer = await engine.admission.answer(walk, partial(_departure, request))
    drawn = answer.result.value
    return JSONResponse(
        await asyncio.to_thread(
            images_reply, engine.model, drawn, seeds, answer.usage, answer.seconds
        )
    )


@routes.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """What is served, under each name that requests may give."""
    model = _engine(request).model
    return {"object": "list", "data": [_card(request, name) for name in model.abilities]}


@routes.get("/v1/models/{name:path}")
async def one_model(name: str, request: Request) -> dict[str, Any]:
    """One entry of the list."""
    if name not in _engine(request).model.abilities:
        raise _unknown_model(_engine(request), name)
    return _card(request, name)


@routes.api_route("/health", methods=["GET", "HEAD"], include_in_schema=False)
async def health(request: Request) -> Response:
    """Status 200 once requests are answered, else 503."""
    engine = _engine(request)
    about = {"status": engine.status, "model": engine.model.name}
    if engine.reason:
        about["reason"] = engine.reason
    return JSONResponse(about, 200 if engine.status == "ready" else 503)


@routes.get("/version")
async def version(request: Request) -> dict[str, Any]:
    """The program's version, and what names the results of the served stages."""
    model = _engine(request).model
    return {
        "version": metadata.version("plait"),
        "engine": "plait",
        "model": model.name,
        "weights": model.weights,
        "stages": {spec.name: spec.digest for spec in model.stages},
        "system_fingerprint": model.fingerprint,
    }


@routes.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Counts for Prometheus."""
    text = _engine(request).metrics.text()
    return PlainTextResponse(text, media_type=CONTENT_TYPE_LATEST)


def _engine(request: Request) -> ServingEngine:
    engine: ServingEngine = request.app.state.engine
    return engine


def _require(engine: ServingEngine, name: str | None, ability: str) -> None:
    """RequestRefused where the named model is not served, or does something else."""
    abilities = engine.model.abilities
    if name is not None and name not in abilities:
        raise _unknown_model(engine, name)
    able = abilities[name] if name else {a for names in abilities.values() for a in names}
    if ability in able:
        return
    what = name or engine.model.name
    if ability == "chat":
        reason = f"{what} draws from prompts: use /v1/images/generations"
    else:
        reason = f"{what} does not draw from prompts: use /v1/chat/completions"
    raise unsupported(reason, "model")


def _unknown_model(engine: ServingEngine, name: str) -> RequestRefused:
    valid = ", ".join(engine.model.abilities)
    message = f"the model {name!r} is not served here; valid: {valid}"
    return RequestRefused(404, "model_not_found", message, param="model")


def _card(request: Request, name: str) -> dict[str, Any]:
    model = _engine(request).model
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "plait",
        "capabilities": model.abilities[name],
        "weights": model.weights,
    }


async def _departure(request: Request) -> None:
    """Ends when the client leaves before it has its reply."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return JSONResponse(error.body, error.status, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """Which fields are wrong and why; never their values, which may be whole pictures."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    kinds = {"json_invalid": "invalid_json", "missing": "missing"}
    code = kinds.get(errors[0]["type"], "invalid_value")
    places = [".".join(str(p) for p in e["loc"] if p != "body") for e in errors]
    texts = [e["msg"].removeprefix("Value error, ") for e in errors]
    lines = [f"{p}: {t}" if p else t for p, t in zip(places, texts, strict=True)]
    message = "; ".join(dict.fromkeys(lines[:_SHOWN_ERRORS]))
    refused = RequestRefused(400, code, message, param=places[0] or None)
    return await _refused(request, refused)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "invalid_json")
    return await _refused(
        request, RequestRefused(error.status_code, code, str(error.detail))
    )


async def _defect(request: Request, error: Exception) -> Response:
    """A defect of plait: its traceback is in the server's log."""
    text = f"{type(error).__name__}; see the server's log"
    return await _refused(request, RequestRefused(500, "internal_error", text))
