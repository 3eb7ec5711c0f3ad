"""Broken files of checkpoints: each error names the file, the value and the rule."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    count,
    divided,
    in_pickle,
    read_json,
    read_tokenizer,
    section,
    shape_of,
    stored_tensors,
)
from generators.loading.strict import fill, identical

pytestmark = pytest.mark.models


def compress(path: Path) -> None:
    """Write a file of `torch.save` again with every entry deflated."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_compressed_files_of_torch_are_read(tmp_path):
    path = tmp_path / "weights.pth"
    tensors = {"even": torch.arange(5000.0), "odd": torch.ones(40, 40)}
    torch.save(tensors, path)
    compress(path)
    stored = in_pickle(path)
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match=r"weights\.pth"):
        in_pickle(path)


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ({}, "weight_map"),
        ({"weight_map": ["a"]}, r"\['a'\]"),
        ({"weight_map": {"a": 7}}, "7"),
        ({"weight_map": {"a": "b.bin"}}, r"b\.bin"),
    ],
)
def test_indices_of_shards(tmp_path, index, named):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=named):
        list(stored_tensors(Files(str(tmp_path))))


STORED = {"weight": [1.0, 2.0], "bias": torch.ones(2)}


def filled(*_: Any) -> None:
    told = {"source": "a.json", "device": torch.device("cpu"), "dtype": torch.float32}
    fill(torch.nn.Linear(3, 2), STORED.items(), identical(STORED), **told)


@pytest.mark.parametrize(
    ("read", "given", "named"),
    [
        *((count, ({"heads": v}, "heads"), "heads") for v in (0, -3, "8", 2.5, True, None)),
        (count, ({}, "heads"), "heads"),
        (section, ({"sizes": 3}, "sizes"), "sizes is 3"),
        (divided, (12, 5, "heads is 5"), "heads is 5.*12"),
        (shape_of, (STORED, "weight"), "weight is a list"),
        (shape_of, (STORED, "other"), "other"),
        (configured, (LlamaConfig, {"hidden_size": "wide"}), "LlamaConfig.*hidden_size"),
        (configured, (LlamaConfig, {"num_attention_heads": 0}), "LlamaConfig"),
        (configured, (LlamaConfig, {"num_attention_heads": 3}), "attention heads"),
        (filled, (), "1 not a tensor: weight is a list"),
    ],
)
def test_values_that_are_refused(read: Callable[..., Any], given: Any, named: str):
    with pytest.raises(CheckpointError, match=rf"a\.json.*{named}"):
        read(*given, "a.json")


def test_values_that_are_read():
    assert count({"heads": 8}, "heads", "a.json") == 8
    assert section({"sizes": {"a": 1}}, "sizes", "a.json") == {"a": 1}
    assert divided(12, 4, "heads is 4", "a.json") == 3
    assert configured(LlamaConfig, {"hidden_size": 64}, "a.json").hidden_size == 64
    assert shape_of(STORED, "bias", "a file", 1) == (2,)
    with pytest.raises(CheckpointError, match=r"bias.*\(2,\).*3"):
        shape_of(STORED, "bias", "a file", 3)


@pytest.mark.parametrize("text", ["[1]", '{"a"'])
@pytest.mark.parametrize("read", [read_json, read_tokenizer])
def test_files_that_hold_something_else(tmp_path, read, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read(path)
