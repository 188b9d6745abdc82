"""Trust policy for signatures, from ``--trust`` and ``--allow-unsigned``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lbx.base.errors import BundleError
from lbx.bundle.signing.signature import NAMESPACE, TrustedKey, find_key, load_keys, parse, verify


@dataclass(frozen=True)
class SignedBy:
    """Valid signature of a file.

    Attributes:
        key: fingerprint of the signer's key, in the format of ``ssh-keygen -l``.
        key_type, namespace: as in the signature.
        signer: owner of the key in the file of trusted keys, or "".
        trusted: whether the key is in the file of trusted keys and valid.
    """

    file: str
    key: str
    key_type: str
    namespace: str
    signer: str
    trusted: bool


@dataclass(frozen=True)
class Trust:
    """Trust policy: decides which bundles, or attestations of results, are accepted.

    Attributes:
        allow_unsigned: accept files without a signature or signed by an untrusted key. An invalid signature is refused
            in any case.
        namespace: purpose of the signatures.
    """

    keys: Sequence[TrustedKey] = ()
    allow_unsigned: bool = False
    namespace: str = NAMESPACE

    @classmethod
    def from_key_file(cls, keys: Path | None, *, allow_unsigned: bool = False, namespace: str = NAMESPACE) -> Self:
        """Create a policy from a file of public keys or allowed signers. Raises UsageError for an invalid file."""
        return cls(load_keys(keys) if keys is not None else (), allow_unsigned, namespace)

    def check_signature(
        self, signature: bytes, data: bytes, signed_name: str, location: str, *, already_trusted: bool = False
    ) -> SignedBy:
        """Verify a signature, and check that the signer is trusted.

        Args:
            signature: contents of the .sig file.
            data: contents of the signed file.
            location: name of the signature in messages.
            already_trusted: a trusted key has already signed the whole bundle, so this signer need not be trusted.

        Raises:
            BundleError: the signature is invalid, or the signer is not trusted.
        """
        parsed = parse(signature, location, self.namespace)
        verify(parsed, data, location)
        key, reason = find_key(parsed, self.keys)
        if key is None and not (already_trusted or self.allow_unsigned):
            if not self.keys:
                reason = "no trusted keys were given"
            raise BundleError(
                f"{location} was made with the untrusted key {parsed.fingerprint}: {reason}.",
                fix="Ask the signer over a separate channel to confirm this key; if it is right, add its public half "
                "to the file given with --trust.",
            )
        return SignedBy(
            signed_name,
            parsed.fingerprint,
            parsed.key_type,
            parsed.namespace,
            key.owner if key else "",
            key is not None,
        )

    def require_signed(self, location: str) -> None:
        """Raise BundleError for a missing signature, unless unsigned files are allowed."""
        if not self.allow_unsigned:
            raise BundleError(
                f"{location} is not signed, so its author is unknown.",
                fix="Copy the signature too, or ask for a file made with --sign. Pass --allow-unsigned to accept an "
                "unsigned file.",
            )


ANYONE = Trust(allow_unsigned=True)
