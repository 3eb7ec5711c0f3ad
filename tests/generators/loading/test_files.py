"""Broken files of checkpoints: each error names the file, the value and the rule."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

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


def compressed(path: Path) -> None:
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
    compressed(path)
    stored = in_pickle(path)
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match=r"weights\.pth is broken"):
        in_pickle(path)


def test_a_tensor_that_is_none(tmp_path):
    stored = {"weight": [1.0, 2.0], "bias": torch.ones(2)}
    module = torch.nn.Linear(3, 2)
    told = {"source": "a file", "device": torch.device("cpu"), "dtype": torch.float32}
    with pytest.raises(CheckpointError, match="1 not a tensor: weight is a list"):
        fill(module, stored.items(), identical(stored), **told)
    with pytest.raises(CheckpointError, match="a file: weight is a list; it must be a te"):
        shape_of(stored, "weight", "a file")
    with pytest.raises(CheckpointError, match="a file lacks other"):
        shape_of(stored, "other", "a file")
    with pytest.raises(CheckpointError, match=r"bias has the shape \(2,\), not one of 3"):
        shape_of(stored, "bias", "a file", 3)
    assert shape_of(stored, "bias", "a file", 1) == (2,)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, r"index\.json lacks weight_map"),
        ({"weight_map": ["a"]}, r"index\.json: weight_map is \['a'\]; it must hold named"),
        ({"weight_map": {"a": 7}}, "weight_map names 7; it must name a file"),
        ({"weight_map": {"a": "b.bin"}}, r"has no file 'b\.bin'"),
    ],
)
def test_indices_of_shards(tmp_path, index, message):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        list(stored_tensors(Files(str(tmp_path))))


@pytest.mark.parametrize("value", [0, -3, "8", 2.5, True, None])
def test_counts(value):
    with pytest.raises(CheckpointError, match=r"a\.json: heads is .*; it must be a whole"):
        count({"heads": value}, "heads", "a.json")
    with pytest.raises(CheckpointError, match=r"a\.json lacks heads"):
        count({}, "heads", "a.json")
    assert count({"heads": 8}, "heads", "a.json") == 8


def test_values_below_a_name_and_whole_parts():
    assert section({"sizes": {"a": 1}}, "sizes", "a.json") == {"a": 1}
    with pytest.raises(CheckpointError, match=r"a\.json: sizes is 3; it must hold named"):
        section({"sizes": 3}, "sizes", "a.json")
    assert divided(12, 4, "heads is 4", "a.json") == 3
    with pytest.raises(CheckpointError, match=r"heads is 5, but 12 is not divisible by 5"):
        divided(12, 5, "heads is 5", "a.json")


def test_configurations_that_transformers_refuses():
    from transformers import LlamaConfig

    for fields, message in (
        ({"hidden_size": "wide"}, "a.json is not a valid LlamaConfig: .*hidden_size"),
        ({"num_attention_heads": 0}, "a.json is not a valid LlamaConfig: .*zero"),
        ({"num_attention_heads": 3}, "multiple of the number of attention heads"),
    ):
        with pytest.raises(CheckpointError, match=message):
            configured(LlamaConfig, fields, "a.json")
    assert configured(LlamaConfig, {"hidden_size": 64}, "a.json").hidden_size == 64


def test_json_that_holds_no_named_values(tmp_path):
    path = tmp_path / "config.json"
    for text, message in (("[1]", "holds a list; it must"), ('{"a"', "is not JSON")):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message):
            read_json(path)
    with pytest.raises(CheckpointError, match=r"config\.json is not a valid tokenizer"):
        read_tokenizer(path)
