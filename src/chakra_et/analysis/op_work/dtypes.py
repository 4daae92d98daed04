"""Element types: how profiles and execution traces spell them, their sizes, and which arithmetic they stand for."""

from __future__ import annotations

__all__ = ["ARITHMETIC", "ELEMENT_BYTES", "KINDS", "SCALAR_TYPES", "promoted"]

# Bytes of an element as it lies in memory. Two fp4 numbers share a byte, and shapes count the bytes.
ELEMENT_BYTES: dict[str, int] = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "fp4": 1, "fp8": 1, "fp8_scale": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip

# Kinds whose arithmetic has a peak of its own in device descriptions.
ARITHMETIC: dict[str, str] = {
    "fp64": "fp64", "fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp4": "fp4",
    "int8": "int8", "uint8": "int8", "complex32": "fp16", "complex64": "fp32", "complex128": "fp64",
}  # fmt: skip

# C++ names (profiles write them bare, execution traces as "Tensor(NAME)"), and Python's, which some writers use.
KINDS: dict[str, str] = {
    "bool": "bool", "unsigned char": "uint8", "uint8": "uint8", "signed char": "int8", "char": "int8", "int8": "int8",
    "short": "int16", "short int": "int16", "int16": "int16", "unsigned short": "int16", "uint16": "int16",
    "int": "int32", "int32": "int32", "unsigned int": "int32", "uint32": "int32", "long": "int64", "long int": "int64",
    "long long": "int64", "int64": "int64", "unsigned long": "int64", "uint64": "int64",
    "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64", "c10::Half": "fp16", "half": "fp16",
    "float16": "fp16", "c10::BFloat16": "bf16", "bfloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "c10::Float8_e8m0fnu": "fp8_scale",
    "c10::Float4_e2m1fn_x2": "fp4", "c10::complex<c10::Half>": "complex32", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::qint8": "int8", "c10::quint8": "uint8", "c10::qint32": "int32",
}  # fmt: skip

# PyTorch's numbering (c10/core/ScalarType.h), which a `dtype` argument is recorded as.
SCALAR_TYPES: dict[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 8: "complex32",
    9: "complex64", 10: "complex128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
    44: "fp8_scale", 45: "fp4",
}  # fmt: skip

_RANKS: dict[str, tuple[int, int]] = {
    "bool": (0, 0), "uint8": (1, 1), "int8": (1, 1), "int16": (1, 2), "int32": (1, 3), "int64": (1, 4),
    "fp4": (2, 0), "fp8_scale": (2, 0), "fp8": (2, 1), "bf16": (2, 2), "fp16": (2, 2), "fp32": (2, 3), "fp64": (2, 4),
    "complex32": (3, 2), "complex64": (3, 3), "complex128": (3, 4),
}  # fmt: skip


def promoted(kinds: list[tuple[str, bool]]) -> str:
    """Return the element type of an elementwise result.

    Tensors without dimensions count only where their category (boolean, integer, floating, complex) is above that of
    the others. Source: PyTorch's documentation of type promotion (tensor attributes, ``torch.dtype``).

    Args:
        kinds: For each operand its type, and whether it has dimensions.

    Example:
        >>> promoted([("bf16", True), ("fp64", False)]), promoted([("fp16", True), ("bf16", True)])
        ('bf16', 'fp32')
    """
    if any(kind not in _RANKS for kind, _ in kinds) or not kinds:
        return ""
    solid = [kind for kind, has_dimensions in kinds if has_dimensions]
    loose = [kind for kind, has_dimensions in kinds if not has_dimensions]
    best = max(solid, key=_RANKS.__getitem__, default="")
    if {"fp16", "bf16"} <= set(solid) and best in ("fp16", "bf16"):
        best = "fp32"
    top = max(loose, key=_RANKS.__getitem__, default="")
    if not best or (top and _RANKS[top][0] > _RANKS[best][0]):
        return top
    return best
