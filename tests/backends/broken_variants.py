"""CPU variants of llama.cpp that are broken on purpose: copies of a real one, with other machine code in a function."""

from __future__ import annotations

import struct
from pathlib import Path

BEST_OF_ALL = b"\xb8\xff\xff\xff\x7f\xc3"  # mov eax, 2147483647; ret
ILLEGAL = b"\x0f\x0b"  # ud2
DOES_NOTHING = b"\xc3"  # ret
ENDLESS = b"\xeb\xfe"  # jmp to itself


def broken(variant: Path, to: Path, **functions: bytes) -> Path:
    """A copy of an x86-64 variant, in which each function begins with the given code; llama.cpp scores it best."""
    data = bytearray(variant.read_bytes())
    for name, code in {"ggml_backend_score": BEST_OF_ALL, **functions}.items():
        at = _offset(data, name)
        data[at : at + len(code)] = code
    to.write_bytes(data)
    return to


def _offset(data: bytes | bytearray, name: str) -> int:
    """Where an exported function's code lies in a 64-bit ELF file."""
    sections_at, entry, count = (
        struct.unpack_from("<Q", data, 40)[0],
        *struct.unpack_from("<HH", data, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + entry * i) for i in range(count)]
    symbols = next(section for section in sections if section[1] == 11)  # SHT_DYNSYM
    names = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        named, _, _, section, address = struct.unpack_from("<IBBHQ", data, at)
        if section and data[names + named : names + named + len(name) + 1] == name.encode() + b"\0":
            home = sections[section]
            return address - home[3] + home[4]
    raise LookupError(name)
