"""The judge's text: the `phi3-chat` template, Phi-3's LLaMA tokenizer, and a toy tokenizer.

The template is that of internvl/conversation.py (OpenGVLab/InternVL@2410d1d; separator
style MPT) and `chat` of modeling_internvl_chat.py. Images are where the request has
them: upstream looks for the letters `<image>` in the prompt, so that such letters in a
question or an answer shift all images after them.

The tokenizer reads `tokenizer.model` and `tokenizer_config.json` and yields the ids of
transformers 4.37's slow `LlamaTokenizer`, which the official scorer uses
(`use_fast=False`), in its legacy form (`plait.generators.loading.llama`) or, with
`"legacy": false`, in the other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import sentencepiece

from plait.generators.content import display_text
from plait.generators.document import Image, Role, Text, Turn, texts_in
from plait.generators.loading.llama import (
    AddedToken,
    Control,
    LlamaPieces,
    LlamaTokenizer,
    train_pieces,
)
from plait.scorers.judging.rubrics import OWN

END = Control("<|end|>")
BEGIN_IMAGE = Control("<img>")
END_IMAGE = Control("</img>")
IMAGE_TOKEN = Control("<IMG_CONTEXT>")
PLACEHOLDER = "<image>"
"""How upstream marks an image in a prompt, and how `text_for_people` does."""

_ROLES: Mapping[Role, Control] = {
    "system": Control("<|system|>"),
    "user": Control("<|user|>"),
    "assistant": Control("<|assistant|>"),
}
CONTROLS = (*_ROLES.values(), END, BEGIN_IMAGE, END_IMAGE, IMAGE_TOKEN)
"""Every control token a prompt may hold."""

PromptPart = str | Control | Image


def conversation(turns: Sequence[Turn], system: str) -> list[PromptPart]:
    """Return the prompt for the assistant's next turn.

    `system` is the system message unless the first turn is one.
    """
    if not turns or turns[0].role != "system":
        turns = (Turn("system", (Text(system),)), *turns)
    parts: list[PromptPart] = []
    for turn in turns:
        parts += [_ROLES[turn.role], "\n"]
        for segment in turn.content:
            parts.append(segment.text if isinstance(segment, Text) else segment)
        parts.append(END)
    return [*parts, _ROLES["assistant"], "\n"]


def with_control_tokens(parts: Iterable[PromptPart]) -> list[str | Control]:
    """Return each image as its control tokens, with one image token in place of many."""
    pieces: list[str | Control] = []
    for part in parts:
        if isinstance(part, Image):
            pieces += [BEGIN_IMAGE, IMAGE_TOKEN, END_IMAGE]
        else:
            pieces.append(part)
    return pieces


def text_for_people(parts: Iterable[PromptPart]) -> str:
    """Return the prompt for people."""
    named = (part.name if isinstance(part, Control) else part for part in parts)
    return display_text(named, PLACEHOLDER)


def find_spelled_controls(turns: Iterable[Turn], names: Iterable[str]) -> list[str]:
    """Names of control tokens that texts spell out; they are read letter by letter."""
    texts: list[str] = []
    for turn in turns:
        texts += texts_in(turn.content)

    def is_spelled(name: str) -> bool:
        return any(name in text for text in texts)

    return [name for name in (*names, PLACEHOLDER) if is_spelled(name)]


_REMEMBERED_TEXTS = 512
_SPACE = "\u2581"
"""How SentencePiece writes a space."""
_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
"""`normalizer_spec { add_dummy_prefix: false }` of sentencepiece_model.proto. Messages in
this format are merged by setting one after the other."""


class PhiTokenizer(LlamaTokenizer):
    """Text and control tokens to ids, ids to text."""

    def __init__(
        self, model: bytes, config: Mapping[str, Any], added: Iterable[AddedToken]
    ) -> None:
        """From the content of `tokenizer.model` and of `tokenizer_config.json`.

        Raises CheckpointError when the former is not a SentencePiece model.
        """
        self._legacy = config.get("legacy") is not False
        proto = model if self._legacy else model + _NO_DUMMY_PREFIX
        super().__init__(LlamaPieces.parse(proto, "tokenizer.model"), added)
        self._chunk = functools.lru_cache(_REMEMBERED_TEXTS)(self._encode)
        self._name_of = {token.id: token.name for token in self.added.values()}
        special = [
            config.get("bos_token", "<s>"),
            config.get("eos_token", "</s>"),
            config.get("unk_token", "<unk>"),
            config.get("pad_token"),
            *config.get("additional_special_tokens", ()),
        ]
        self._special = frozenset(_name(token) for token in special if token)
        """Names of tokens with a special role, which decoding omits."""
        self._first: list[int] = []
        if config.get("add_bos_token", True):
            self._first.append(self._id(_name(config.get("bos_token", "<s>"))))
        self._last: list[int] = []
        if config.get("add_eos_token", False):
            self._last.append(self._id(_name(config.get("eos_token", "</s>"))))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all added tokens."""
        return tuple(self.added)

    def encode(self, parts: Sequence[str | Control]) -> list[int]:
        """Ids of text and control tokens, with those that begin and end a sequence."""
        first = parts[0] if parts and not self._legacy else None
        # The space before the first word stands before control tokens without a role too.
        role = not isinstance(first, Control) or first.name in self._special
        lead = [] if role else self.chunk(_SPACE)
        return [*self._first, *lead, *super().encode(parts), *self._last]

    def strip(self, text: str, before: Control | None, after: Control | None) -> str:
        """As every LLaMA tokenizer; a text that opens a prompt begins with a space."""
        if before is None and not self._legacy:
            text = _SPACE + text
        return super().strip(text, before, after)

    def chunk(self, text: str) -> list[int]:
        """Return ids of a text between control tokens; answers to a question share most."""
        return list(self._chunk(text))

    def _encode(self, text: str) -> list[int]:
        if self._legacy:
            return super().chunk(text)
        text = text.replace(_SPACE, " ")
        if not text.startswith(" "):
            return self.pieces.encode(text)
        # SentencePiece may drop spaces at the beginning, but not after something.
        guard = "<unk>"
        ids = self.pieces.encode(guard + text)
        return ids[len(self.pieces.encode(guard)) :]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special tokens and ids that have no name.

        Other added tokens appear by their names, between spaces.
        """
        special = {self._id(name) for name in self._special if name in self.added}
        readable: list[int] = []
        for token in ids:
            is_named = token in self._name_of or token < self.pieces.size
            if is_named and token not in special:
                readable.append(token)
        texts: list[str] = []
        for is_added, run in groupby(readable, lambda token: token in self._name_of):
            if is_added:
                texts += map(self._name_of.__getitem__, run)
            elif text := self._text_of(run):
                texts.append(text)
        return " ".join(texts)

    def _text_of(self, ids: Iterable[int]) -> str:
        """Return the text of a run of pieces."""
        pieces = list(map(self.pieces.processor.id_to_piece, ids))
        # The space before the first word is the tokenizer's own.
        pieces[0] = pieces[0].removeprefix(_SPACE)
        return str(self.pieces.processor.decode(pieces))

    def _id(self, name: str) -> int:
        if name in self.added:
            return self.added[name].id
        return int(self.pieces.processor.piece_to_id(name))


def read_added_tokens(
    config: Mapping[str, Any], ids: Mapping[str, int] | None = None
) -> list[AddedToken]:
    """The added tokens of a `tokenizer_config.json`, or of an older `added_tokens.json`."""
    decoder = config.get("added_tokens_decoder")
    if decoder is None:
        return [AddedToken(name, number) for name, number in (ids or {}).items()]
    tokens: list[AddedToken] = []
    for number, about in decoder.items():
        token = AddedToken(
            about["content"],
            int(number),
            strips_left=bool(about.get("lstrip")),
            strips_right=bool(about.get("rstrip")),
        )
        tokens.append(token)
    return tokens


def _name(token: Any) -> str:
    """Return the name of a token, which files hold plainly or with its options."""
    return str(token["content"] if isinstance(token, Mapping) else token)


_VERDICTS = """
the a of and to in on with is are was not no but for from this that these it its as by
question answer image picture text story step method score feedback quality criterion
coherence consistency creative style content shows describes matches follows supports
good clear weak strong relevant missing correct wrong complete vivid partly fully does
first second third last one two three each both all some more less than between overall
0 1 2 3 4 5 6 ### . , :
"""
WORDS = tuple(_VERDICTS.split())
"""What toy models write; sometimes it looks like a verdict."""
_PIECES = 1400
"""Most pieces of the toy vocabulary; 259 of them are bytes and SentencePiece's own."""
_REPEATS = 20
"""How often the rubrics are in the training text for each copy of our words."""


@functools.cache
def toy_pieces() -> bytes:
    """Return a SentencePiece model of our words and rubrics, set up as LLaMA's is.

    It spells a rubric in about as many pieces as a published one.
    """
    pairs = [" ".join(pair) for pair in itertools.product(WORDS, WORDS[::7])]
    rubrics: list[str] = []
    for rubric in OWN.values():
        rubrics += [line for line in rubric.template.splitlines() if line]
    texts = pairs + _REPEATS * rubrics
    return train_pieces(texts, _PIECES, hard_vocab_limit=False)


def toy_tokenizer() -> tuple[PhiTokenizer, list[int], int]:
    """Return a tokenizer, the ids of its whole words, and how many ids it has.

    Its chat tokens take the white space after them, as published.
    """
    pieces = sentencepiece.SentencePieceProcessor(model_proto=toy_pieces())
    size = pieces.get_piece_size()
    added: list[AddedToken] = []
    for control in CONTROLS:
        is_chat_token = control.name.startswith("<|")
        added.append(AddedToken(control.name, size, strips_right=is_chat_token))
        size += 1
    config = {"legacy": False, "add_bos_token": False}
    ids = {pieces.piece_to_id(_SPACE + word) for word in WORDS}
    # Not every word has become one piece.
    words = sorted(ids - {pieces.unk_id()})
    return PhiTokenizer(toy_pieces(), config, added), words, size
