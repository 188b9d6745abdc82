"""Verify signatures of ssh-keygen's public-key methods with `cryptography`.

Rejects keys that OpenSSH refuses although OpenSSL accepts them, and weak keys: non-canonical encodings of Ed25519
keys and ECDSA points, Ed25519 keys of small order, RSA keys under 2048 bits.
"""

from __future__ import annotations

from collections.abc import Callable

_P = 2**255 - 19
_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL = frozenset((0, 1, _P - 1, _OF_ORDER_8, _P - _OF_ORDER_8))
"""y coordinates of Ed25519's eight points of small order. With such a key, one signature fits many messages."""

RSA_BITS = (2048, 16384)
CURVES = ("nistp256", "nistp384", "nistp521")


def ed25519(key: bytes, signature: bytes, message: bytes) -> bool:
    """Verify an Ed25519 signature (64 bytes) of ``message`` by ``key`` (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    y = int.from_bytes(key, "little") & (1 << 255) - 1
    if y >= _P or y in _SMALL:
        return False
    return _is_verified(lambda: Ed25519PublicKey.from_public_bytes(key).verify(signature, message))


def rsa(modulus: int, exponent: int, signature: bytes, message: bytes, *, digest: str) -> bool:
    """Verify an RSA signature (PKCS #1 v1.5) of ``message``; ``digest`` is "sha256" or "sha512"."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
    from cryptography.hazmat.primitives.hashes import SHA256, SHA512

    if not RSA_BITS[0] <= modulus.bit_length() <= RSA_BITS[1] or exponent >= 1 << 64:
        return False
    padded_signature = signature.rjust((modulus.bit_length() + 7) // 8, b"\0")  # SSH may omit leading zeros
    hashed = {"sha256": SHA256, "sha512": SHA512}[digest]()
    return _is_verified(
        lambda: RSAPublicNumbers(exponent, modulus).public_key().verify(padded_signature, message, PKCS1v15(), hashed)
    )


def ecdsa(curve: str, key: bytes, r: int, s: int, message: bytes) -> bool:
    """Verify the ECDSA signature (r, s) of ``message``.

    Args:
        curve: a name from ``CURVES``.
        key: uncompressed point: byte 4, x, y.
    """
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    kind, hashed = {
        "nistp256": (ec.SECP256R1, hashes.SHA256),
        "nistp384": (ec.SECP384R1, hashes.SHA384),
        "nistp521": (ec.SECP521R1, hashes.SHA512),
    }[curve]
    if key[:1] != b"\x04":
        return False
    signature = encode_dss_signature(r, s)
    point = ec.EllipticCurvePublicKey.from_encoded_point
    return _is_verified(lambda: point(kind(), key).verify(signature, message, ec.ECDSA(hashed())))


def _is_verified(verify: Callable[[], None]) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        verify()
    except (InvalidSignature, ValueError):  # ValueError: not a valid key
        return False
    return True
