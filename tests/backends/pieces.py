"""A tokenizer made of given pieces, so that a test decides where a mark is cut into tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lbx.engine.reasoning import THINK, ReasoningMarks, encode_separately


class PieceTokenizer:
    """Token n stands for the nth piece (text or bytes); control tokens decode to nothing."""

    bos_token = eos_token = ""
    bos_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    chat_template: str | None = None

    def __init__(
        self, pieces: Sequence[str | bytes], controls: Sequence[str] = (), marks: ReasoningMarks = THINK
    ) -> None:
        names = [*pieces, *controls]
        self.pieces = [p.encode() if isinstance(p, str) else p for p in names]
        self.control_tokens: Mapping[str, int] = {c: len(pieces) + n for n, c in enumerate(controls)}
        self.hidden_tokens = self.control_tokens
        self.reasoning_marks = marks

    def encode(self, text: str, *, special: bool) -> list[int]:
        """The longest piece first."""
        data, ids = text.encode(), []
        hidden = () if special else self.control_tokens.values()
        while data:
            fitting = [n for n, p in enumerate(self.pieces) if data.startswith(p) and n not in hidden]
            ids.append(max(fitting, key=lambda n: len(self.pieces[n])))
            data = data[len(self.pieces[ids[-1]]) :]
        return ids

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        return encode_separately(self, pieces)

    def decode(self, ids: Sequence[int]) -> str:
        silent = self.control_tokens.values()
        return b"".join(self.pieces[i] for i in ids if i not in silent).decode("utf-8", "replace")

    def tokens(self, *pieces: str | bytes) -> list[int]:
        """The ids of pieces, in order."""
        return [self.pieces.index(p.encode() if isinstance(p, str) else p) for p in pieces]
