"""Checks signatures of the public-key methods that ssh-keygen signs with, without any library.

The container that verifies has neither OpenSSH nor a cryptography package, and verifying needs no secret: nothing
here has to run in constant time. Ed25519 after RFC 8032 section 5.1.7 (without cofactor, as OpenSSH), RSASSA-PKCS1-v1_5
after RFC 8017 section 8.2.2, ECDSA after FIPS 186-5 section 6.4.2. A signature takes 5 to 60 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Point = tuple[int, int]
_Extended = tuple[int, int, int, int]
P = TypeVar("P")

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_ZERO: _Extended = (0, 1, 1, 0)


def ed25519(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` (64 bytes) of ``message`` was made with the secret of ``key`` (32 bytes)."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r = _point(key), _point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= _L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % _L
    return _same(_times(s, _BASE, _ZERO, _plus), _plus(r, _times(h, a, _ZERO, _plus)))


def _point(data: bytes) -> _Extended | None:
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def _plus(p: _Extended, q: _Extended) -> _Extended:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(n: int, p: P, zero: P, plus: Callable[[P, P], P]) -> P:
    total = zero
    while n:
        if n & 1:
            total = plus(total, p)
        p = plus(p, p)
        n >>= 1
    return total


def _same(p: _Extended, q: _Extended) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 == (p[1] * q[2] - q[1] * p[2]) % _P


_BASE: _Extended = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little")) or _ZERO

# What stands before a digest that RSA signs (RFC 8017, section 9.2): the hash's name in DER.
_DIGEST_INFO = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}
RSA_BITS = (2048, 16384)


def rsa(modulus: int, exponent: int, signature: bytes, message: bytes, *, digest: str) -> bool:
    """Whether the RSA signature of ``message`` is right. ``digest``: "sha256" or "sha512"."""
    size = (modulus.bit_length() + 7) // 8
    s = int.from_bytes(signature, "big")
    if not RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1] or not 3 <= exponent < 1 << 64:
        return False
    if len(signature) > size or s >= modulus:
        return False
    told = _DIGEST_INFO[digest] + hashlib.new(digest, message).digest()
    # The whole block is compared: parsing it is how forgers got in.
    whole = b"\x00\x01" + b"\xff" * (size - len(told) - 3) + b"\x00" + told
    return pow(s, exponent, modulus).to_bytes(size, "big") == whole


@dataclass(frozen=True, slots=True)
class Curve:
    """y² = x³ - 3x + b over the integers modulo p, with a base point of order n."""

    p: int
    b: int
    n: int
    base: Point
    digest: str


CURVES = {
    "nistp256": Curve(
        p=2**256 - 2**224 + 2**192 + 2**96 - 1,
        b=0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        n=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        base=(
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        ),
        digest="sha256",
    ),
    "nistp384": Curve(
        p=2**384 - 2**128 - 2**96 + 2**32 - 1,
        b=0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
        n=0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
        base=(
            0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
            0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F,
        ),
        digest="sha384",
    ),
    "nistp521": Curve(
        p=2**521 - 1,
        b=int(
            "051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e1"
            "56193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
            16,
        ),
        n=int(
            "1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa"
            "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409",
            16,
        ),
        base=(
            int(
                "c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3d"
                "baa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66",
                16,
            ),
            int(
                "11839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e6"
                "62c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
                16,
            ),
        ),
        digest="sha512",
    ),
}


def ecdsa(curve: Curve, key: bytes, r: int, s: int, message: bytes) -> bool:
    """Whether (r, s) signs ``message``. ``key`` is an uncompressed point: 4, x, y."""
    size = (curve.p.bit_length() + 7) // 8
    if len(key) != 2 * size + 1 or key[0] != 4:
        return False
    q = (int.from_bytes(key[1 : size + 1], "big"), int.from_bytes(key[size + 1 :], "big"))
    on_curve = (q[1] ** 2 - q[0] ** 3 + 3 * q[0] - curve.b) % curve.p == 0
    if max(q) >= curve.p or not on_curve or not 0 < r < curve.n or not 0 < s < curve.n:
        return False
    digest = hashlib.new(curve.digest, message).digest()
    e = int.from_bytes(digest, "big") >> max(8 * len(digest) - curve.n.bit_length(), 0)
    w = pow(s, -1, curve.n)

    def plus(a: Point | None, b: Point | None) -> Point | None:
        return _add(a, b, curve)

    found = plus(_times(e * w % curve.n, curve.base, None, plus), _times(r * w % curve.n, q, None, plus))
    return found is not None and found[0] % curve.n == r


def _add(a: Point | None, b: Point | None, curve: Curve) -> Point | None:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % curve.p == 0:
        return None
    if a == b:
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, curve.p)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, curve.p)
    x = (slope * slope - a[0] - b[0]) % curve.p
    return x, (slope * (a[0] - x) - a[1]) % curve.p
