"""Counts tokens without the table that EverOS' tokenizer downloads at first use."""

from everalgo import _tokenize
from tiktoken import Encoding


def use_bytes() -> None:
    """Let each byte be a token."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    _tokenize._tokenizer_cache = Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})
