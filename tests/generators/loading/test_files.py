"""Broken files of checkpoints: each error names the file, the value and the rule."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    count,
    in_pickle,
    read_json,
    read_stored,
    read_tokenizer,
    shape_of,
)
from plait.generators.loading.strict import fill, identical

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
        list(read_stored(Files(str(tmp_path))))


def test_a_value_that_is_no_tensor():
    stored = {"weight": [1.0, 2.0], "bias": torch.ones(2)}
    told = {"source": "a file", "device": torch.device("cpu"), "dtype": torch.float32}
    with pytest.raises(CheckpointError, match="1 not a tensor: weight"):
        fill(torch.nn.Linear(3, 2), stored.items(), identical(stored), **told)
    for name, rank in (("weight", 1), ("other", 1), ("bias", 3)):
        with pytest.raises(CheckpointError, match=f"a file.*{name}"):
            shape_of(stored, name, "a file", rank)
    assert shape_of(stored, "bias", "a file", 1) == (2,)


@pytest.mark.parametrize("value", [0, -3, "8", 2.5, True, None])
def test_numbers_that_count_nothing(value):
    with pytest.raises(CheckpointError, match=r"a\.json: heads is"):
        count({"heads": value}, "heads", "a.json")


@pytest.mark.parametrize("text", ["[1]", '{"a"'])
@pytest.mark.parametrize("read", [read_json, read_tokenizer])
def test_files_that_hold_something_else(tmp_path, read, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read(path)
