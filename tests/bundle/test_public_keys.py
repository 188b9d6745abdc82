"""Edge cases of each method of signing, made here by hand: what a signature must not be, beside what it may."""

from __future__ import annotations

import hashlib
from functools import cache

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.bundle.signing import signature
from tests.profiles import examples

MESSAGE = b"what is signed"
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
NEUTRAL = (1).to_bytes(32, "little")
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
SMALL = {
    "order 1": NEUTRAL,
    "order 2": (P - 1).to_bytes(32, "little"),
    "order 4": bytes(32),
    "order 4, the other": (1 << 255).to_bytes(32, "little"),
    "order 8, 1": ORDER_8,
    "order 8, 2": ORDER_8[:31] + b"\x85",
    "order 8, 3": bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    "order 8, 4": bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
}
UNUSUAL = {
    "0 as p": P.to_bytes(32, "little"),
    "0 as p, the other": (P | 1 << 255).to_bytes(32, "little"),
    "1 as p + 1": (P + 1).to_bytes(32, "little"),
    "1 as p + 1, negative zero": (P + 1 | 1 << 255).to_bytes(32, "little"),
    "1, negative zero": (1 | 1 << 255).to_bytes(32, "little"),
    "-1, negative zero": (P - 1 | 1 << 255).to_bytes(32, "little"),
    "the largest": b"\xff" * 32,
}


class Secret:
    """An Ed25519 key whose holder does what no program does: signs with a point of their choice."""

    def __init__(self, seed: bytes) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self.key.public_key().public_bytes_raw()
        scalar = bytearray(hashlib.sha512(seed).digest()[:32])
        scalar[0] &= 248
        scalar[31] = scalar[31] & 63 | 64
        self.scalar = int.from_bytes(scalar, "little")

    def sign_with(self, r: bytes) -> bytes:
        """A signature whose first half is ``r``, right where that is a spelling of the neutral point."""
        h = int.from_bytes(hashlib.sha512(r + self.public + MESSAGE).digest(), "little")
        return r + (h * self.scalar % L).to_bytes(32, "little")


SECRET = Secret(bytes(range(32)))


def fits(value: bytes, key: bytes = SECRET.public) -> bool:
    return signature.verify_ed25519(key, value, MESSAGE)


@pytest.mark.parametrize("name", [*SMALL, *UNUSUAL])
def test_no_message_is_signed_by_a_key_of_small_order_or_of_another_spelling(name: str) -> None:
    point = {**SMALL, **UNUSUAL}[name]
    for r in SMALL.values():
        for n in range(16):
            assert not signature.verify_ed25519(point, r + bytes(32), bytes([n])), "one signature, many messages"


def test_the_library_alone_would_take_them() -> None:
    """Else the guard in front of it could go."""
    for point in (NEUTRAL, UNUSUAL["1 as p + 1"]):
        Ed25519PublicKey.from_public_bytes(point).verify(NEUTRAL + bytes(32), MESSAGE)


def test_a_signature_of_ed25519_has_one_spelling() -> None:
    right = SECRET.key.sign(MESSAGE)
    assert fits(right)
    s = int.from_bytes(right[32:], "little")
    for other in (*range(s + L, 1 << 256, L), L - s, 0, L, (1 << 256) - 1, s | 1 << 253):
        assert not fits(right[:32] + other.to_bytes(32, "little")), other
    for wrong in (b"", right[:32], right[:63], right + b"\0", right[32:] + right[:32], right[:31] + bytes(33)):
        assert not fits(wrong)
    for key in (b"", SECRET.public[:31], SECRET.public + b"\0", SECRET.public[::-1], right[:32]):
        assert not fits(right, key)
    assert not fits(SECRET.key.sign(hashlib.sha512(MESSAGE).digest())), "what is signed hashed first is another method"


def test_the_point_of_a_signature_is_compared_as_it_is_spelled_and_without_the_cofactor() -> None:
    assert fits(SECRET.sign_with(NEUTRAL)), "the construction is right"
    for name, r in UNUSUAL.items():
        assert not fits(SECRET.sign_with(r)), name
    for name, r in SMALL.items():  # eight times these is the neutral point, which a check with the cofactor takes
        assert fits(SECRET.sign_with(r)) is (r == NEUTRAL), name


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=70), st.binary(max_size=70))
def test_rubbish_is_no_key_and_no_signature(one: bytes, other: bytes) -> None:
    right = SECRET.key.sign(MESSAGE)
    assert not signature.verify_ed25519(one, other, MESSAGE)
    assert fits(right, one) is (one == SECRET.public)
    assert fits(other) is (other == right)
    r, s = int.from_bytes(one, "big"), int.from_bytes(other, "big")
    assert not signature.verify_rsa(r, s, other, MESSAGE, digest="sha256")
    for curve in CURVES:
        assert not signature.verify_ecdsa(curve, one, r, s, MESSAGE)
        assert not signature.verify_ecdsa(curve, ec_key(curve)[1], r, s, MESSAGE)


@cache
def rsa_key(bits: int = 2048, exponent: int = 65537) -> rsa.RSAPrivateNumbers:
    return rsa.generate_private_key(exponent, bits).private_numbers()


PREFIX = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}


def padded(size: int, rest: bytes, *, kind: bytes = b"\x01", fill: bytes = b"\xff") -> int:
    return int.from_bytes(b"\x00" + kind + fill * (size - len(rest) - 3) + b"\x00" + rest, "big")


def of_rsa(value: int | bytes, digest: str = "sha256", *, exponent: int = 65537, modulus: int = 0) -> bool:
    modulus = modulus or rsa_key().public_numbers.n
    data = value if isinstance(value, bytes) else value.to_bytes(256, "big")
    return signature.verify_rsa(modulus, exponent, data, MESSAGE, digest=digest)


@pytest.mark.parametrize("digest", PREFIX)
def test_rsa_takes_one_block_alone(digest: str) -> None:
    n, d = rsa_key().public_numbers.n, rsa_key().d
    other = {"sha256": "sha512", "sha512": "sha256"}[digest]
    told = PREFIX[digest] + hashlib.new(digest, MESSAGE).digest()
    assert of_rsa(pow(padded(256, told), d, n), digest)
    assert not of_rsa(pow(padded(256, told), d, n), other), "the other hash's method"
    bare = told[: len(PREFIX[digest])].replace(b"\x05\x00", b"")  # without NULL, lengths put right
    without_null = bytes([bare[0], bare[1] - 2, bare[2], bare[3] - 2]) + bare[4:] + told[len(PREFIX[digest]) :]
    for name, block in {
        "encrypted": padded(256, told, kind=b"\x02"),
        "no kind": padded(256, told, kind=b"\x00"),
        "zeros for filling": padded(256, told, fill=b"\x00"),
        "more behind": padded(256, told + b"\x00"),
        "much behind": padded(256, told + bytes(100)),
        "no hash's name": padded(256, told[len(PREFIX[digest]) :]),
        "without NULL": padded(256, without_null),
        "the other's name": padded(256, PREFIX[other] + hashlib.new(digest, MESSAGE).digest()),
        "shorter filling": padded(256, told) >> 8,
    }.items():
        assert not of_rsa(pow(block, d, n), digest), name


def test_rsa_by_a_cube_root() -> None:
    """With exponent 3, a number whose cube begins as it should is found without the key."""
    private = rsa_key(exponent=3)
    n = private.public_numbers.n
    told = PREFIX["sha256"] + hashlib.sha256(MESSAGE).digest()
    assert of_rsa(pow(padded(256, told), private.d, n), exponent=3, modulus=n)
    start = b"\x00\x01" + b"\xff" * 8 + b"\x00" + told
    low, high = 0, 1 << 700
    wanted = int.from_bytes(start + b"\xff" * (256 - len(start)), "big")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= wanted else (low, middle - 1)
    assert (low**3).to_bytes(256, "big").startswith(start)
    assert not of_rsa(low, exponent=3, modulus=n)
    assert not of_rsa(padded(256, told), exponent=1, modulus=n), "exponent 1 signs nothing"


def test_the_length_of_an_rsa_signature() -> None:
    n, d = rsa_key().public_numbers.n, rsa_key().d
    right = pow(padded(256, PREFIX["sha256"] + hashlib.sha256(MESSAGE).digest()), d, n)
    whole = right.to_bytes(256, "big")
    assert of_rsa(whole.lstrip(b"\0")), "OpenSSH takes it without the zeros in front"
    for wrong in (b"", b"\0", b"\0" + whole, whole[1:], whole[:-1], (right + n).to_bytes(257, "big"), bytes(256)):
        assert not of_rsa(wrong)
    for value in (0, 1, n - 1, n, n - right, *([right + n] if right + n < 1 << 2048 else [])):
        assert not of_rsa(value)


def test_which_rsa_keys_count() -> None:
    told = PREFIX["sha256"] + hashlib.sha256(MESSAGE).digest()
    small = rsa_key(1024)
    value = pow(padded(128, told), small.d, small.public_numbers.n).to_bytes(128, "big")
    assert not of_rsa(value, modulus=small.public_numbers.n), "1,024 bits are too few"
    n = rsa_key().public_numbers.n
    for modulus, exponent in ((n, 0), (n, 2), (n, 65536), (n, 1 << 64), (n, n), (n + 1, 65537), (1 << 16384, 65537)):
        assert not of_rsa(value, modulus=modulus, exponent=exponent)
    assert not of_rsa(b"\x01" * 2048, modulus=(1 << 16383) + 1, exponent=(1 << 64) - 1)


CURVES: dict[str, tuple[ec.EllipticCurve, hashes.HashAlgorithm, int]] = {
    "nistp256": (ec.SECP256R1(), hashes.SHA256(), 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551),
    "nistp384": (
        ec.SECP384R1(),
        hashes.SHA384(),
        2**384 - 1388124618062372383947042015309946732620727252194336364173,
    ),
    "nistp521": (
        ec.SECP521R1(),
        hashes.SHA512(),
        2**521 - 657877501894328237357444332315020117536923257219387276263472201219398408051703,
    ),
}


@cache
def ec_key(curve: str) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = ec.derive_private_key(12345678901234567890, CURVES[curve][0])
    return key, point_of(key, serialization.PublicFormat.UncompressedPoint)


def point_of(key: ec.EllipticCurvePrivateKey, form: serialization.PublicFormat) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.X962, form)


@pytest.mark.parametrize("curve", CURVES)
def test_ecdsa_numbers_and_points(curve: str) -> None:
    key, point = ec_key(curve)
    _, digest, n = CURVES[curve]
    r, s = decode_dss_signature(key.sign(MESSAGE, ec.ECDSA(digest)))
    assert signature.verify_ecdsa(curve, point, r, s, MESSAGE)
    assert signature.verify_ecdsa(curve, point, r, n - s, MESSAGE), "OpenSSH takes both"
    assert not signature.verify_ecdsa(curve, point, r, s, MESSAGE + b"x")
    for wrong in ((0, s), (r, 0), (0, 0), (n, s), (r, n), (r + n, s), (r, s + n), (1, 1), (n - r, s), (s, r)):
        assert not signature.verify_ecdsa(curve, point, *wrong, MESSAGE)
    assert not signature.verify_ecdsa(curve, point, r + (n << 500_000), s, MESSAGE)
    size = len(point) // 2
    x, y = point[1 : size + 1], point[size + 1 :]
    for name, spelling in {
        "compressed": point_of(key, serialization.PublicFormat.CompressedPoint),
        "hybrid": bytes([6 | y[-1] & 1]) + x + y,
        "infinity": b"\0",
        "origin": b"\x04" + bytes(2 * size),
        "off the curve": b"\x04" + x + bytes([*y[:-1], y[-1] ^ 1]),
        "outside of the field": b"\x04" + b"\xff" * (2 * size),
        "turned": b"\x04" + y + x,
        "shorter": point[:-1],
        "longer": point + b"\0",
        "nothing": b"",
    }.items():
        assert not signature.verify_ecdsa(curve, spelling, r, s, MESSAGE), name
    for other in CURVES.keys() - {curve}:
        assert not signature.verify_ecdsa(other, point, r, s, MESSAGE)
        assert not signature.verify_ecdsa(other, ec_key(other)[1], r, s, MESSAGE)


def test_each_curve_has_its_own_hash() -> None:
    key, point = ec_key("nistp256")
    r, s = decode_dss_signature(key.sign(MESSAGE, ec.ECDSA(hashes.SHA512())))
    assert not signature.verify_ecdsa("nistp256", point, r, s, MESSAGE)
