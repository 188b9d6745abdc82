"""Whose signature is enough: what ``--trust`` and ``--allow-unsigned`` say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lbx.base.errors import BundleError
from lbx.bundle.signing.signature import TrustedKey, check, find_key, load_keys, parse


@dataclass(frozen=True)
class SignedBy:
    """A signature that fits what it signs.

    Attributes:
        file: what it signs.
        key: the signer's fingerprint, as ``ssh-keygen -l`` shows it.
        key_type, namespace: as in the signature.
        signer: whom the file of trusted keys gives the key to, or "".
        trusted: whether the key is in that file.
    """

    file: str
    key: str
    key_type: str
    namespace: str
    signer: str
    trusted: bool


@dataclass(frozen=True)
class Trust:
    """Which bundles are let in.

    Attributes:
        keys: whose signatures count.
        allow_unsigned: let a bundle in that nobody signed, or somebody else. A signature that does not fit what it
            signs is refused in any case.
    """

    keys: Sequence[TrustedKey] = ()
    allow_unsigned: bool = False

    @classmethod
    def of(cls, keys: Path | None, *, allow_unsigned: bool = False) -> Self:
        """From a file of public keys or allowed signers. Raises UsageError."""
        return cls(load_keys(keys) if keys is not None else (), allow_unsigned)

    def judge(self, signature: bytes, data: bytes, signed: str, where: str, *, vouched: bool = False) -> SignedBy:
        """Check one signature.

        Args:
            signature: the text of the .sig file.
            data: the bytes of what it signs; ``signed``: that file's name.
            where: the signature's own name, for messages.
            vouched: somebody trusted has signed all of it already, so that this signer need not be.

        Raises:
            BundleError: it does not fit, or nobody trusts the signer.
        """
        parsed = parse(signature, where)
        check(parsed, data, where)
        key, reason = find_key(parsed, self.keys)
        if key is None and not (vouched or self.allow_unsigned):
            if not self.keys:
                reason = "no trusted keys were given"
            raise BundleError(
                f"{where} was made with the key {parsed.fingerprint}, and {reason}.",
                fix="Ask the bundler over a separate channel whether this is the key; if it is, put its public half "
                "into the file given with --trust.",
            )
        return SignedBy(
            signed, parsed.fingerprint, parsed.key_type, parsed.namespace, key.owner if key else "", key is not None
        )

    def require_signed(self, where: str) -> None:
        """Refuse what has no signature, unless that is allowed.

        Raises:
            BundleError: it is not.
        """
        if not self.allow_unsigned:
            raise BundleError(
                f"{where} is not signed: nothing says who made it.",
                fix="Get the signature too, or have the bundle made with --sign; --allow-unsigned accepts it without "
                "one.",
            )


ANYONE = Trust(allow_unsigned=True)
