"""The source of a user's class or function, and digests of it.

Digests are of syntax trees: comments, layout and strings that stand alone (docstrings) do
not count.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from plait.generators.keys import digest
from plait.generators.secrets import without_keys

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def place_of(own: Any) -> str:
    """Return `mine.py:12`, where a function, or what a class or stage computes, begins.

    Empty where that is not written in Python.
    """
    function = getattr(own, "function", own)
    if not inspect.isfunction(function):
        function = call_of(own if isinstance(own, type) else type(own))
    return place_of_function(function)


def call_of(cls: type) -> Any:
    """Return what a class has as `__call__`, for its instances; None where it has none."""
    for base in cls.__mro__:
        # Not `getattr`, which would find the call of the metaclass: that makes instances.
        if "__call__" in vars(base):
            return vars(base)["__call__"]
    return None


def place_of_function(function: Any) -> str:
    """As `place_of`, of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    return "" if code is None else f"{file_shown(code.co_filename)}:{code.co_firstlineno}"


def place_of_class(cls: type) -> str:
    """Return where a class is written, of its constructor if it has one, as `place_of`."""
    written = vars(cls).get("__init__")
    code = getattr(written, "__code__", None)
    if code is not None and code.co_filename != "<string>":  # as a dataclass's is
        return place_of_function(written)
    try:
        file = inspect.getfile(cls)
        _, line = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return place_of(cls)
    return f"{file_shown(file)}:{line}"


def file_shown(filename: str) -> str:
    """Return the name of a file of code as errors show it: that of a cell says nothing."""
    return "notebook cell" if "ipykernel" in filename else Path(filename).name


def definition_of(own: type | types.FunctionType) -> ast.Module | None:
    """Return the syntax tree of a class or function alone; None without source.

    That of a notebook is known by its functions: `inspect` finds no class there.
    """
    for function in _functions_of(own):
        code = function.__code__
        text = "".join(linecache.getlines(code.co_filename, function.__globals__))
        if found := _find(text, own.__name__, code.co_firstlineno):
            return _alone(found)
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(own)))
    except (OSError, TypeError, SyntaxError):
        return None


def _functions_of(own: type | types.FunctionType) -> Iterator[types.FunctionType]:
    """Yield the functions that a class defines itself; of a function, it alone."""
    members = vars(own).values() if isinstance(own, type) else [own]
    yield from filter(inspect.isfunction, members)


def _find(text: str, name: str, line: int) -> Definition | None:
    """Return the innermost class or function of this name around a line of a file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    found = None
    # Outer nodes come before inner ones, so that the innermost is found last.
    for node in ast.walk(tree):
        if isinstance(node, Definition) and node.name == name:
            decorators = [decorator.lineno for decorator in node.decorator_list]
            first = min([node.lineno, *decorators])
            if first <= line <= (node.end_lineno or line):
                found = node
    return found


def _alone(node: Definition) -> ast.Module:
    return ast.Module(body=[node], type_ignores=[])


def function_digest(function: types.FunctionType) -> str | None:
    """Return a digest of what a function does; None where there is no source.

    It is of its source, of that of the functions and classes of its module that it reads,
    at any depth, and of the plain values that any of these read: constants of the module,
    of enclosing functions, and defaults. Values that look like API keys do not count.
    """
    trees: dict[str, str] = {}
    values: dict[str, Any] = {}
    left: list[Any] = [function]
    while left:
        own = left.pop()
        if own.__qualname__ in trees:
            continue
        tree = definition_of(own)
        if tree is None:
            return None
        trees[own.__qualname__] = tree_digest(tree)
        for name, value in _read_by(own, tree).items():
            if inspect.isfunction(value) or isinstance(value, type):
                same = value.__module__ == function.__module__
                if same and "<lambda>" not in value.__qualname__:
                    left.append(value)
            elif is_plain(value) and not _looks_like_key(value):
                values[f"{own.__qualname__} {name}"] = value
    return digest(trees, values)


def _read_by(own: type | types.FunctionType, tree: ast.Module) -> dict[str, Any]:
    """Return what a class or function reads from outside, by name."""
    read: dict[str, Any] = {}
    for function in _functions_of(own):
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                read[parameter.name] = parameter.default
        try:
            outside = inspect.getclosurevars(function)
        except ValueError:  # a name of an enclosing function that has no value yet
            continue
        read |= {**outside.globals, **outside.nonlocals}
    written = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            written.update(node.names)
    return {name: value for name, value in read.items() if name not in written}


def is_plain(value: Any) -> bool:
    """Return whether a value is a text, a number or None, or a list or table of such."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        has_names = all(isinstance(name, str) for name in value)
        return has_names and all(map(is_plain, value.values()))
    # Not `isinstance`: a subclass, such as a number of numpy's, may say of itself anything.
    return value is None or type(value) in (str, int, float, bool)


def _looks_like_key(value: Any) -> bool:
    return without_keys(repr(value)) != repr(value)


def tree_digest(tree: ast.Module) -> str:
    """Return the digest of a syntax tree, in hex (32 characters)."""
    return hashlib.sha256("\n".join(_tokens(tree)).encode("utf-8")).hexdigest()[:32]


def _tokens(tree: ast.Module) -> Iterator[str]:
    """Yield what a tree says, alike in all versions of Python: its empty fields differ."""
    left: list[Any] = [tree]
    while left:  # trees may be deeper than Python's stack
        item = left.pop()
        if isinstance(item, ast.AST):
            fields = {}
            for name, value in ast.iter_fields(item):
                if value is not None and value != []:
                    fields[name] = value
            yield f"{type(item).__name__} {' '.join(fields)}"
            left += fields.values()
        elif isinstance(item, list):
            counted = list(_without_strings(item))
            yield f"{len(counted)} items"
            left += counted
        else:
            yield repr(item)


def _without_strings(items: Iterable[Any]) -> Iterator[Any]:
    """Leave out statements that are nothing but a string."""
    for item in items:
        value = item.value if isinstance(item, ast.Expr) else None
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            yield item
