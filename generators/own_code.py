"""A user's own class, instance or function: found by name, given from Python, checked.

What is wrong with it is said before anything runs, with the file and the line.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from plait.generators.base import import_module, import_target
from plait.generators.catalogue import is_custom, known_prefixes
from plait.generators.errors import MissingInput, PlaitError, UsageError
from plait.generators.keys import digest
from plait.generators.names import unknown
from plait.generators.source import (
    call_of,
    file_shown,
    is_plain,
    place_of,
    place_of_class,
    place_of_function,
)

_SHORT = re.compile(r"[\w=.' -]{,60}")
_OF_PYTHON = re.compile(r"__main__:.*|([\w.]+:[\w.]+)\(.*\)", re.DOTALL)
"""Names of what only Python can give: of a script or notebook, and of instances."""
_NOTHING = object()
_UNBOUND = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """What a user brings as a stage: a class, an instance of one, or a function."""

    name: str
    """By which runs know it."""
    target: str
    """`module:name` of the class or function, which names its results."""
    code: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What an instance was made with, where that is not the default."""
    given: bool = False
    """Whether no module has it, so that it goes to workers by value."""

    @property
    def is_function(self) -> bool:
        """Whether it answers one input at a time."""
        return inspect.isfunction(self.code)

    @property
    def is_instance(self) -> bool:
        """Whether it was made, and loaded, by the user."""
        return not (self.is_function or isinstance(self.code, type))

    @property
    def definition(self) -> Any:
        """The function or class; of an instance, its class."""
        return type(self.code) if self.is_instance else self.code


_given: ContextVar[Mapping[str, OwnCode]] = ContextVar(
    "_given", default=MappingProxyType({})
)


@contextlib.contextmanager
def giving(*things: Any) -> Iterator[tuple[str, ...]]:
    """Yield a name for each class, instance or function; within, names stand for them.

    Names themselves stay as they are. UsageError for what cannot be a stage.
    """
    names = []
    known = dict(_given.get())
    for thing in things:
        if isinstance(thing, str):
            names.append(thing)
            continue
        own = _code_of_object(thing)
        before = known.setdefault(own.name, own)
        if own.definition is not before.definition:
            raise UsageError(f"two definitions have the name {own.name}; rename one")
        names.append(own.name)
    token = _given.set(known)
    try:
        yield tuple(names)
    finally:
        _given.reset(token)


def is_given(name: str) -> bool:
    """Return whether a name stands for what was given from Python, in this run or one."""
    return name in _given.get() or bool(_OF_PYTHON.fullmatch(name))


def own_code(name: str) -> OwnCode:
    """Return what a name of a user's own stands for.

    MissingInput where there is no such module, or where it was given from Python by another
    process; UsageError for another thing than a class or function.
    """
    if known := _given.get().get(name):
        return known
    module, _, attribute = name.partition(":")
    code = getattr(_import_own(module, name), attribute, _NOTHING)
    if code is _NOTHING and is_given(name):
        raise _of_another_process(name)
    if code is _NOTHING:
        raise unknown(f"class or function in {module!r}", attribute, _usable(module))
    if not _is_definition(code):
        raise UsageError(
            f"stage {name!r} is a value of type {type(code).__name__}; name a class or a "
            "function"
        )
    return OwnCode(name=name, target=name, code=code, given=module == "__main__")


def _import_own(module: str, name: str) -> ModuleType:
    """Return a user's module; MissingInput where there is none, UsageError for errors."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        known = ", ".join(known_prefixes())
        raise MissingInput(
            f"stage {name!r}: {error}. Prefixes that name no module are {known}"
        ) from error
    except PlaitError:
        raise
    except Exception as error:  # whatever a user's module raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        # That of a syntax error is in its message.
        told = isinstance(error, SyntaxError)
        where = "" if told else f" ({file_shown(last.filename)}:{last.lineno})"
        raise UsageError(
            f"stage {name!r}: its module cannot be imported: {type(error).__name__}: "
            f"{error}{where}"
        ) from error


def _is_definition(code: Any) -> bool:
    return isinstance(code, type) or inspect.isfunction(code)


def _usable(module: str) -> list[str]:
    there = inspect.getmembers(importlib.import_module(module), _is_definition)
    return [name for name, code in there if code.__module__ == module]


def _of_another_process(name: str) -> MissingInput:
    instance = _OF_PYTHON.fullmatch(name)
    target = instance[1] if instance and instance[1] else ""
    again = "run that script or notebook again"
    if target and not target.startswith("__main__:"):
        again += f", or name the class, {target!r}, with its settings"
    return MissingInput(
        f"{name!r} was given from Python: its run can be read here, and not run again; "
        f"{again}"
    )


def _code_of_object(thing: Any) -> OwnCode:
    """Return a class, function or instance as `own_code` does; UsageError."""
    if _is_definition(thing):
        target = _target_of(thing)
        return OwnCode(
            name=target, target=target, code=thing, given=not _is_importable(target, thing)
        )
    if not callable(thing) or not inspect.isfunction(call_of(type(thing))):
        raise UsageError(
            f"a value of type {type(thing).__name__} is no model or scorer: give a name, "
            "a class, an instance of a class with __call__, or a function (def)"
        )
    target = _target_of(type(thing))
    settings = _settings_of(thing)
    name = target
    if settings:
        shown = " ".join([f"{key}={value!r}" for key, value in settings.items()])
        # Long ones, and those with marks that names have for other things, are a digest.
        name += f"({shown if _SHORT.fullmatch(shown) else digest(settings)[:8]})"
    return OwnCode(name=name, target=target, code=thing, settings=settings, given=True)


def _target_of(code: Any) -> str:
    name = code.__qualname__.replace("<locals>.", "")
    if "<" in name:
        raise UsageError(
            f"a lambda ({place_of(code)}) has no name to keep its results under: write def"
        )
    return f"{code.__module__}:{name}"


def _is_importable(target: str, code: Any) -> bool:
    try:
        return (
            is_custom(target) and "__main__" not in target and import_target(target) is code
        )
    except (ImportError, AttributeError):
        return False


def _settings_of(instance: Any) -> dict[str, Any]:
    """Return what tells an instance from others of its class: plain values; UsageError."""
    cls = type(instance)
    own = getattr(instance, "settings", None)
    if isinstance(own, Mapping):
        settings = dict(own)
        where = "settings[{!r}]"
    else:
        settings = dict(_iter_arguments(instance))
        where = "self.{}"
    for name, value in settings.items():
        if not isinstance(name, str) or not is_plain(value):
            kind = type(value).__name__
            raise _untold(cls, f"{where.format(name)} is a value of type {kind}")
    return settings


def _untold(cls: type, why: str) -> UsageError:
    return UsageError(
        f"an instance of {cls.__name__} ({place_of_class(cls)}) cannot be told from "
        f"others: {why}. Its results are kept under what it was made with: texts, numbers, "
        "and lists and tables of these. Give it an attribute `settings` that holds such, "
        'as in {"model": "v2", "steps": 20}, or pass the class'
    )


def _iter_arguments(instance: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of the constructor that are not the default, as it kept them."""
    cls = type(instance)
    for name, parameter in _parameters(cls).items():
        # By convention `*_` and `**_` are ignored; what others took cannot be seen later.
        hides = parameter.kind in _UNBOUND and not name.startswith("_")
        if hides or (parameter.kind not in _UNBOUND and not hasattr(instance, name)):
            raise _untold(cls, f"it keeps no self.{name}")
        if parameter.kind in _UNBOUND:
            continue
        value = getattr(instance, name)
        if value is not parameter.default and not _equal(value, parameter.default):
            yield name, value


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and is_plain(one) and bool(one == other)


def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return what a class's constructor takes; nothing where Python cannot tell."""
    try:
        return inspect.signature(cls).parameters
    except (ValueError, TypeError):
        return {}


def takes(code: Any, argument: str) -> bool:
    """Return whether the constructor of a class takes an argument of this name."""
    if not isinstance(code, type):
        return False
    parameters = _parameters(code)
    kinds = [parameter.kind for parameter in parameters.values()]
    # `**more` takes whatever it is given.
    return argument in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def refuse_unusable(own: OwnCode, settings: Mapping[str, Any]) -> None:
    """UsageError for code that cannot be called as a stage is, or not with `settings`."""
    if own.is_function:
        _refuse_other_calls(own.name, own.code, "query", bound=0)
        _refuse_settings(own, settings, "a function takes none")
        return
    call = call_of(own.definition)
    if call is None:
        raise UsageError(
            f"class {own.name} ({place_of_class(own.definition)}) has no `__call__`: it "
            "must have `def __call__(self, inputs)`, which returns a list with one result "
            "for each"
        )
    if inspect.isfunction(call):
        _refuse_other_calls(f"{own.name}.__call__", call, "list of inputs", bound=1)
    if own.is_instance:
        _refuse_settings(own, settings, "an instance has those that it was made with")
    else:
        _refuse_other_arguments(own, settings)


def _refuse_settings(own: OwnCode, settings: Mapping[str, Any], why: str) -> None:
    if settings:
        raise UsageError(f"settings of {own.name}: {', '.join(settings)}; {why}")


def _refuse_other_calls(name: str, call: FunctionType, given: str, *, bound: int) -> None:
    """UsageError for a function that is not called with one `given`, or returns later."""
    where = f"{name} ({place_of_function(call)})"
    waits = inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)
    if waits or inspect.isgeneratorfunction(call):
        what = "is a coroutine (async def)" if waits else "is a generator (it has yield)"
        raise UsageError(f"{where} {what}; it must return its results")
    try:
        inspect.signature(call).bind(*range(bound + 1))
    except TypeError as error:
        written = f"def {call.__name__}{inspect.signature(call)}"
        raise UsageError(
            f"{where} is called with one argument, the {given}, and `{written}` does not "
            f"take that: {error}"
        ) from None


def _refuse_other_arguments(own: OwnCode, settings: Mapping[str, Any]) -> None:
    """UsageError for settings that a class's constructor does not take, or lacks."""
    named = _parameters(own.code)
    if not named and not settings:
        return
    where = f"{own.name} ({place_of_class(own.code)})"
    for name in settings:
        if not takes(own.code, name):
            raise unknown(f"setting of {where}", name, named)
    missing: list[str] = []
    for name, parameter in named.items():
        needed = parameter.default is parameter.empty and parameter.kind not in _UNBOUND
        if needed and name != "weights" and name not in settings:
            missing.append(name)
    if missing:
        raise UsageError(
            f"{where} needs {', '.join(missing)}: give it as a setting, as in "
            f'models."{own.name}".{missing[0]} = ...'
        )


@dataclass(frozen=True)
class FunctionStage:
    """A stage that asks a function for one input at a time.

    What it raises stands for that input, so that no other is asked again.
    """

    function: FunctionType

    def __call__(self, inputs: Iterable[Any]) -> list[Any]:
        """Return what the function returns for each, or the exception that it raises."""
        return [self._answer(value) for value in inputs]

    def _answer(self, value: Any) -> Any:
        try:
            answer = self.function(value)
        except Exception as error:
            return error
        return [answer] if isinstance(answer, str) else answer


def stage_of(code: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the loaded stage of a class, a function, or an instance."""
    if inspect.isfunction(code):
        return FunctionStage(code)
    return code(**arguments) if isinstance(code, type) else code
