"""OPT's vocabulary with GILL's nine additions, and text in upstream's spelling.

Upstream used transformers' slow tokenizer, to which it added `<|image|>` and [IMG0] to
[IMG7] (`load_gill`, gill/models.py). It strips white space around those names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generators.errors import CheckpointError
from generators.loading.files import Files, read_tokenizer

BOS, PAD = "</s>", "<pad>"
"""OPT begins texts with the token that ends them (facebook/opt-6.7b, config.json)."""
CLS = "<|image|>"

_TIDIED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
"""Text that loses its spaces, in this order (`clean_up_tokenization` of transformers)."""


def voken_name(index: int) -> str:
    """Return the name of an image token."""
    return f"[IMG{index}]"


def opt_tokenizer(files: Files) -> Tokenizer:
    """Return an OPT checkpoint's tokenizer: `tokenizer.json`, or vocabulary and merges."""
    single_file = files.find("tokenizer.json")
    if single_file is not None:
        return read_tokenizer(single_file)
    vocabulary, merges = files.need("vocab.json"), files.need("merges.txt")
    try:
        return byte_level(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:
        # The library raises plain `Exception` for any file that it cannot read.
        raise CheckpointError(
            f"{vocabulary} and {merges.name} are not a valid tokenizer: {error}"
        ) from None


def byte_level(model: models.BPE) -> Tokenizer:
    """Return the tokenizer over a byte-level BPE, as OPT has it."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, PAD])
    return tokenizer


class GillTokens:
    """Ids of text, and of the `vokens` image tokens that follow OPT's ids."""

    def __init__(self, tokenizer: Tokenizer, vokens: int) -> None:
        self.tokenizer = tokenizer
        first = tokenizer.get_vocab_size(with_added_tokens=True)
        self.cls = first
        self.vokens = tuple(range(first + 1, first + 1 + vokens))
        """Ids of [IMG0], [IMG1], ..."""
        self.size = first + 1 + vokens
        names = [CLS, *(voken_name(i) for i in range(vokens))]
        self.voken_names = "".join(names[1:])
        """[IMG0][IMG1]..., as upstream writes an image into text."""
        self._added = {name: first + i for i, name in enumerate(names)}
        self._names = {i: name for name, i in self._added.items()}
        self._split = re.compile(f"({'|'.join(map(re.escape, names))})")
        self.bos, pad = self._id(BOS), self._id(PAD)
        self._hidden = {self.bos, pad, self.cls}
        self.newline = self._plain("\n")[0]

    def _id(self, name: str) -> int:
        token: int | None = self.tokenizer.token_to_id(name)
        if token is None:
            raise CheckpointError(f"the vocabulary of the language model lacks {name!r}")
        return token

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode(self, text: str) -> list[int]:
        """Return ids of a piece of text; the added names become their tokens."""
        parts = self._split.split(text)
        ids: list[int] = []
        for i, part in enumerate(parts):
            if i % 2:
                ids.append(self._added[part])
                continue
            text = part if i == 0 else part.lstrip()
            ids += self._plain(text if i == len(parts) - 1 else text.rstrip())
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens, image tokens by name.

        Runs of text and names are joined by a space, and the spaces before punctuation
        are removed, as transformers' slow tokenizers did by default.
        """
        visible = [i for i in ids if i not in self._hidden]
        parts: list[str] = []
        for name, run in groupby(visible, key=lambda i: self._names.get(i, "")):
            ids = list(run)
            parts += [name] * len(ids) if name else [self.tokenizer.decode(ids, False)]
        text = " ".join(parts)
        for spaced in _TIDIED:
            text = text.replace(spaced, spaced.strip())
        return text
