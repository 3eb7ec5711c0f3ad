"""Published checkpoints of Anole and its fine-tunes, from a folder or the Hub.

Three layouts: Hugging Face's, with the VQ model inside (`leloy/Anole-7b-v0.1-hf`); a VQ
model alone (`leloy/Anole-7b-v0.1-vqvae-hf`); and Meta's (`GAIR/Anole-7b-v0.1`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from generators.anole.layouts import taming
from generators.checkpoints import CheckpointError
from generators.loading.configs import configured, count, section
from generators.loading.files import Files, read_tokenizer
from generators.loading.strict import fill, identical
from generators.loading.tensors import stored_tensors

VQ_PREFIX = "model.vqmodel."


class Published(ABC):
    """One checkpoint: its configuration, its tokenizer, and how it fills our modules."""

    vq_config: Mapping[str, Any]
    """As in `ChameleonVQVAEConfig`."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @property
    def source(self) -> str:
        """The checkpoint's name, for errors."""
        return f"checkpoint {self.files.model!r}"

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The text tokenizer."""

    @abstractmethod
    def language_config(self) -> Any:
        """The language model's `ChameleonConfig`."""

    @abstractmethod
    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Fill a language model, strictly."""

    @abstractmethod
    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The VQ model's tensors under the names of taming-transformers."""

    def fill_vq(self, model: Any, device: torch.device) -> None:
        """Fill a `VQModel`, strictly, in float32."""
        layout = taming(model.state_dict(), len(self.vq_config["channel_multiplier"]))
        fill(
            model,
            self.vq_tensors(),
            layout,
            source=f"VQ model of {self.source}",
            device=device,
            dtype=torch.float32,
            tolerated=("loss",),
        )


class HuggingFace(Published):
    """Safetensors shards with `config.json` and `tokenizer.json`."""

    def __init__(self, files: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files)
        from transformers import ChameleonVQVAEConfig

        self.config = config
        self._config_file = f"config.json of {self.source}"
        stored = section(config, "vq_config", self._config_file)
        # Files may leave out what equals transformers' defaults.
        vq = configured(ChameleonVQVAEConfig, stored, f"vq_config in {self._config_file}")
        self.vq_config = vq.to_dict()

    def tokenizer(self) -> Tokenizer:
        """`tokenizer.json`."""
        return read_tokenizer(self.files.need("tokenizer.json"))

    def language_config(self) -> Any:
        """`config.json`."""
        from transformers import ChameleonConfig

        count(self.config, "vocab_size", self._config_file)
        return configured(ChameleonConfig, self.config, self._config_file)

    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All tensors but the VQ model's, shard by shard."""
        fill(
            model,
            self._tensors(lambda name: not name.startswith(VQ_PREFIX)),
            identical(model.state_dict()),
            source=self.source,
            device=device,
            dtype=dtype,
        )

    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Only the shards that hold them are read, or downloaded."""
        for name, tensor in self._tensors(lambda name: name.startswith(VQ_PREFIX)):
            yield name.removeprefix(VQ_PREFIX), tensor

    def _tensors(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Tensor]]:
        return stored_tensors(self.files, wanted)


class VQAlone(HuggingFace):
    """A repository that holds nothing but the VQ model, its names without a prefix."""

    def __init__(self, files: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files, {"vq_config": config})

    def language_config(self) -> Any:
        """There is none."""
        raise self._no_language()

    def tokenizer(self) -> Tokenizer:
        """There is none."""
        raise self._no_language()

    def _no_language(self) -> CheckpointError:
        return CheckpointError(f"{self.source} holds a VQ model only; it cannot draft")

    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the file."""
        return self._tensors(lambda _: True)
