"""Signatures in OpenSSH's SSHSIG format, compatible with ``ssh-keygen -Y sign`` and ``-Y verify``.

ssh-keygen signs, because it supports passphrases, agents and smart cards. Verification is implemented here, because
an air-gapped machine may lack OpenSSH: Ed25519, ECDSA and RSA keys from a file of public keys or an allowed_signers
file, verified with ``cryptography``. OpenSSH's PROTOCOL.sshsig describes the format; ssh-keygen(1),
"ALLOWED SIGNERS", describes the file of keys.

Verification rejects keys that OpenSSH refuses although OpenSSL accepts them, and weak keys: non-canonical encodings of
Ed25519 keys and ECDSA points, Ed25519 keys of small order, RSA keys under 2048 bits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lbx.base.errors import BundleError, UsageError
from lbx.base.inputs import read_file_or_pipe
from lbx.base.processes import run_tool
from lbx.base.visible import as_command

_P = 2**255 - 19
_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL = frozenset((0, 1, _P - 1, _OF_ORDER_8, _P - _OF_ORDER_8))
"""y coordinates of Ed25519's eight points of small order. With such a key, one signature fits many messages."""

RSA_BITS = (2048, 16384)
CURVES = ("nistp256", "nistp384", "nistp521")


def verify_ed25519(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature (64 bytes) of ``message`` is by ``key`` (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    y = int.from_bytes(key, "little") & (1 << 255) - 1
    if y >= _P or y in _SMALL:
        return False
    return _is_verified(lambda: Ed25519PublicKey.from_public_bytes(key).verify(signature, message))


def verify_rsa(modulus: int, exponent: int, signature: bytes, message: bytes, *, digest: str) -> bool:
    """Whether an RSA signature (PKCS #1 v1.5) of ``message`` is by the key. ``digest`` is "sha256" or "sha512"."""
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


def verify_ecdsa(curve: str, key: bytes, r: int, s: int, message: bytes) -> bool:
    """Whether the ECDSA signature (r, s) of ``message`` is by the key.

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


NAMESPACE, RESULTS_NAMESPACE = "lbx-bundle", "lbx-results"
"""Namespaces of the signatures of bundles and of results files: one is refused where the other is expected."""
_SIGNING_COMMANDS = {NAMESPACE: "lbx bundle --sign", RESULTS_NAMESPACE: "lbx attest --sign"}
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_HASHES = ("sha512", "sha256")
_SIGNATURE_LIMIT = 64 << 10
_KEY_FILE_LIMIT, _LINE_LIMIT = 4 << 20, 64 << 10
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_OPTION = re.compile(r'(?:(namespaces|valid-after|valid-before)="([^"\\]*)"|(cert-authority))(,(?=.)|$)', re.IGNORECASE)
_KEY_WORD = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+")


@dataclass(frozen=True, slots=True)
class Signature:
    """Parsed SSHSIG signature, not yet verified.

    Attributes:
        key: public key of the signer, the decoded base64 of an authorized_keys line.
        namespace: purpose of the signature, such as ``NAMESPACE``.
        digest: hash of the message: "sha512" or "sha256".
        method, value: method and bytes of the inner signature.
    """

    key: bytes
    namespace: str
    digest: str
    method: str
    value: bytes

    @property
    def key_type(self) -> str:
        return _Fields(self.key).text()

    @property
    def fingerprint(self) -> str:
        """Fingerprint in the format of ``ssh-keygen -l``."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.key).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """Trusted key, from a line of an allowed_signers file or a file of public keys.

    Attributes:
        key: as in ``Signature``.
        owner: principals of an allowed_signers line, or comment of a public key; may be empty.
        namespaces: list of patterns in OpenSSH's syntax, or None to accept every namespace.
        valid_from, valid_until: bounds of the key's validity, or None if unbounded.
    """

    key: bytes
    owner: str
    namespaces: str | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def refusal_reason(self, namespace: str, now: datetime) -> str:
        """Reason why the key may not sign for a namespace at a time, or "" if it may."""
        if self.namespaces is not None and not _in_pattern_list(namespace, self.namespaces):
            return f"it is not trusted for the namespace {namespace}"
        if self.valid_from is not None and now < self.valid_from:
            return "it is not valid yet (by this machine's clock)"
        if self.valid_until is not None and now > self.valid_until:
            return "it is no longer valid (by this machine's clock)"
        return ""


def sign(data: bytes, key: Path, namespace: str = NAMESPACE) -> bytes:
    """Sign data with ssh-keygen, which may ask for a passphrase on the terminal.

    Args:
        data: contents of NAME.SHA256SUMS, of the tag manifest, or a statement on results.
        key: a private key, or a public key if an agent holds the private key.

    Returns:
        Contents of the signature file.

    Raises:
        UsageError: ssh-keygen is missing or cannot sign with this key, or lbx cannot verify the signature.
    """
    if key.is_dir():
        raise UsageError(f"The key {key} is a folder.", fix="Give the key's file.")
    if not key.is_file():
        raise UsageError(f"Key {key} does not exist.", fix="Create one.", command="ssh-keygen -t ed25519 -f KEY")
    try:
        done = run_tool(
            ["ssh-keygen", "-Y", "sign", "-q", "-f", f"{key}", "-n", namespace],
            input=data,
            capture_output=True,
            check=False,
        )
    except OSError as exc:
        raise UsageError(
            f"Signing needs ssh-keygen, which could not be started: {exc.strerror}.", fix="Install OpenSSH's client."
        ) from exc
    if done.returncode or not done.stdout:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no error message"]
        raise UsageError(f"ssh-keygen could not sign with {key}: {lines[-1]}.", fix="Use another key.")
    try:
        verify(parse(done.stdout, "the new signature", namespace), data, "the new signature")
    except BundleError as exc:
        raise UsageError(
            f"{key} makes signatures that lbx cannot verify: {exc.cause}", fix="Use an Ed25519 key."
        ) from exc
    signed: bytes = done.stdout
    return signed


def parse(content: bytes, location: str, namespace: str = NAMESPACE) -> Signature:
    """Parse a signature file.

    Raises:
        BundleError: the content is not an SSH signature, or was made for another purpose than ``namespace``.
    """
    try:
        signature = _parse(content)
    except (ValueError, IndexError, binascii.Error) as exc:
        raise BundleError(f"{location} is not an SSH signature ({exc}).", fix="Copy it again, or sign again.") from exc
    if signature.namespace != namespace:
        raise BundleError(
            f"{location} was made for {signature.namespace!r}, not for {namespace!r}.",
            fix=f"Sign again with `{_SIGNING_COMMANDS[namespace]}`.",
        )
    return signature


def _parse(content: bytes) -> Signature:
    lines = [line.strip() for line in content.decode("ascii").strip().splitlines()]
    if len(content) > _SIGNATURE_LIMIT or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError("its first or last line is wrong")
    data = base64.b64decode("".join(lines[1:-1]), validate=True)
    fields = _Fields(data[len(_MAGIC) :])
    if not data.startswith(_MAGIC) or fields.number() != 1:
        raise ValueError("it has an unknown format or version")
    key, namespace, _, digest, value = fields.take(), fields.text(), fields.take(), fields.text(), fields.take()
    fields.end()
    inner = _Fields(value)
    method, bare = inner.text(), inner.take()
    inner.end()
    if digest not in _HASHES or not _KEY_WORD.fullmatch(_Fields(key).text()):
        raise ValueError("its hash or its key has an unknown type")
    return Signature(key, namespace, digest, method, bare)


def verify(signature: Signature, data: bytes, location: str) -> None:
    """Verify that the key in a signature has signed ``data``. ``find_key`` checks whether the key is trusted.

    Raises:
        BundleError: the signature does not match the data, or its method is not supported.
    """
    message = _MAGIC + b"".join(
        _string(part)
        for part in (
            signature.namespace.encode(),
            b"",
            signature.digest.encode(),
            hashlib.new(signature.digest, data).digest(),
        )
    )
    try:
        right = _is_valid(signature, message, location)
    except ValueError as exc:
        raise BundleError(f"{location} has a garbled key or signature ({exc}).", fix="Copy it again.") from exc
    if not right:
        raise BundleError(
            f"{location} does not match: the signed file has changed, or the signature belongs to another file.",
            fix="Copy both again from the machine that made them; if that does not help, do not use them.",
        )


def _is_valid(signature: Signature, message: bytes, location: str) -> bool:
    key = _Fields(signature.key)
    kind = key.text()
    if kind == "ssh-ed25519" and signature.method == kind:
        return verify_ed25519(key.last(), signature.value, message)
    if kind == "ssh-rsa" and signature.method in ("rsa-sha2-256", "rsa-sha2-512"):
        exponent, modulus = key.integer(), key.integer()
        key.end()
        return verify_rsa(modulus, exponent, signature.value, message, digest=f"sha{signature.method[-3:]}")
    curve = kind.removeprefix("ecdsa-sha2-")
    if kind.startswith("ecdsa-sha2-") and curve in CURVES and signature.method == kind:
        numbers = _Fields(signature.value)
        r, s = numbers.integer(), numbers.integer()
        numbers.end()
        if key.text() != curve:
            raise ValueError("two curves")
        return verify_ecdsa(curve, key.last(), r, s, message)
    arguments = ("-Y", "verify", "-f", "KEYS", "-I", "SIGNER", "-n", signature.namespace, "-s", "FILE.sig")
    command = f"{as_command('ssh-keygen', *arguments)} < FILE"
    raise BundleError(
        f"{location} was made with a key of type {kind} by the method {signature.method}, which lbx cannot check.",
        fix="Sign with an Ed25519, ECDSA or RSA key, or let ssh-keygen check it.",
        command=command,
    )


def load_keys(path: Path) -> tuple[TrustedKey, ...]:
    """Load keys from an allowed_signers file or a file of public keys (``id_ed25519.pub``, authorized_keys).

    Certificate authorities are skipped, because lbx does not support certificates.

    Raises:
        UsageError: the file cannot be read, is a private key, contains no key, or contains an invalid line.
    """
    try:
        text = read_file_or_pipe(path, _KEY_FILE_LIMIT).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise UsageError(
            f"Cannot read the trusted keys {path}: {reason}.", fix="Pass another file with --trust."
        ) from exc
    if "PRIVATE KEY-----" in text:
        raise UsageError(f"{path} is a private key, which must stay secret.", fix=f"Pass {path}.pub.")
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                key = _parse_line(line.strip())
            except (ValueError, binascii.Error) as exc:
                raise UsageError(
                    f"Line {number} of {path} is neither a public key nor an allowed_signers line ({exc}).",
                    fix='Write: SIGNER namespaces="lbx-*" ssh-ed25519 AAAA...',
                ) from exc
            keys += [key] if key is not None else []
    if not keys:
        raise UsageError(f"{path} does not contain a public key.", fix="Add the signer's public key to it.")
    return tuple(keys)


def _parse_line(line: str) -> TrustedKey | None:
    words = _WORD.findall(line) if len(line) <= _LINE_LIMIT else []
    key_index = next((n for n, word in enumerate(words[:3]) if _KEY_WORD.fullmatch(word)), None)
    if key_index is None or key_index + 1 >= len(words):
        raise ValueError("no key")
    key = base64.b64decode(words[key_index + 1], validate=True)
    if _Fields(key).text() != words[key_index]:
        raise ValueError("the key does not have the stated type")
    owner = words[0].strip('"') if key_index else " ".join(words[2:])
    if key_index == 1 and re.match(r'[a-z-]+="|cert-authority$', words[0], re.IGNORECASE):
        raise ValueError(f"no signer before {words[0]}")
    options = _options(words[1]) if key_index == 2 else {}
    if "cert-authority" in options:
        return None
    after, before = _time(options.get("valid-after")), _time(options.get("valid-before"))
    if after is not None and before is not None and before <= after:
        raise ValueError("valid-before is not after valid-after")
    return TrustedKey(key, owner, options.get("namespaces"), after, before)


def _options(text: str) -> dict[str, str]:
    """Parse options like OpenSSH: each at most once, values in quotes."""
    options: dict[str, str] = {}
    at = 0
    while match := _OPTION.match(text, at):
        name = (match[1] or match[3]).lower()
        if name in options:
            raise ValueError(f"the option {name} appears twice")
        options[name] = match[2] or ""
        at = match.end()
        if at == len(text) and not match[4]:
            return options
    raise ValueError(f"an option {text[at:]}")


def _in_pattern_list(name: str, patterns: str) -> bool:
    """Whether a pattern list of ssh_config(5), with ``*``, ``?`` and ``!pattern`` for exclusion, matches a name."""
    matched = False
    for pattern in patterns.split(","):
        bare = pattern.removeprefix("!")
        if re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in bare), name):
            if bare != pattern:
                return False
            matched = True
    return matched


def _time(text: str | None) -> datetime | None:
    """Parse YYYYMMDD or YYYYMMDDHHMM[SS] as local time, or as UTC with a final Z."""
    if text is None:
        return None
    digits = text.removesuffix("Z")
    if len(digits) not in (8, 12, 14):
        raise ValueError(f"a time {text}")
    moment = datetime.strptime(digits, "%Y%m%d%H%M%S"[: {8: 6, 12: 10, 14: 12}[len(digits)]])
    return moment.replace(tzinfo=UTC) if text.endswith("Z") else moment.astimezone()


def find_key(signature: Signature, keys: Sequence[TrustedKey]) -> tuple[TrustedKey | None, str]:
    """Return the valid trusted key of the signer, or None and the reason."""
    reason = "it is not among the trusted keys"
    for key in keys:
        if key.key == signature.key:
            reason = key.refusal_reason(signature.namespace, datetime.now(UTC))
            if not reason:
                return key, ""
    return None, reason


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class _Fields:
    """Reader of SSH's wire format (RFC 4251, section 5). Raises ValueError."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self) -> int:
        if len(self._data) < 4:
            raise ValueError("it is truncated")
        value, self._data = int.from_bytes(self._data[:4], "big"), self._data[4:]
        return value

    def take(self) -> bytes:
        size = self.number()
        if size > len(self._data):
            raise ValueError("it is truncated")
        value, self._data = self._data[:size], self._data[size:]
        return value

    def text(self) -> str:
        return self.take().decode("ascii")

    def integer(self) -> int:
        data = self.take()
        if data[:1] >= b"\x80":
            raise ValueError("a negative number")
        return int.from_bytes(data, "big")

    def last(self) -> bytes:
        data = self.take()
        self.end()
        return data

    def end(self) -> None:
        if self._data:
            raise ValueError("it has extra bytes at its end")
