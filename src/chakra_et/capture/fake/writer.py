"""Records of a fake capture as a PyTorch execution trace (JSON, schema 1.1.1)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from chakra_et.capture.fake.log import OBJECT, Log, Op, Ref, Sync, Wait

__all__ = ["SCHEMA", "execution_trace"]

SCHEMA = "1.1.1-chakra.0.0.4"
_LEVEL = 1
_CHUNK = 1 << 18
# Ids of the process and thread nodes that every execution trace begins with, and of the groups.
_PROCESS, _THREAD, _GROUPS = 1, 2, 3
_NO_INPUTS = '"inputs":{"values":[],"shapes":[],"types":[],"strides":[]}'
_NO_OUTPUTS = '"outputs":{"values":[],"shapes":[],"types":[],"strides":[]}'

# C++ names of element types, as the execution trace observer writes them, and PyTorch's numbers of them.
_DTYPES: dict[str, tuple[str, int]] = {
    "uint8": ("unsigned char", 0), "int8": ("signed char", 1), "int16": ("short", 2), "int32": ("int", 3),
    "int64": ("long int", 4), "float16": ("c10::Half", 5), "float32": ("float", 6), "float64": ("double", 7),
    "complex32": ("c10::complex<c10::Half>", 8), "complex64": ("c10::complex<float>", 9),
    "complex128": ("c10::complex<double>", 10), "bool": ("bool", 11), "bfloat16": ("c10::BFloat16", 15),
    "float8_e5m2": ("c10::Float8_e5m2", 23), "float8_e4m3fn": ("c10::Float8_e4m3fn", 24),
    "float8_e5m2fnuz": ("c10::Float8_e5m2fnuz", 25), "float8_e4m3fnuz": ("c10::Float8_e4m3fnuz", 26),
    "uint16": ("unsigned short", 27), "uint32": ("unsigned int", 28), "uint64": ("unsigned long", 29),
}  # fmt: skip
_MEMORY_FORMATS = {"contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3}
_LAYOUTS = {"strided": 0, "sparse_coo": 1}


class _Text(NamedTuple):
    """One argument: JSON texts of value, shape and strides, and its type."""

    value: str
    shape: str
    type: str
    strides: str


_NONE = _Text('"<None>"', "[]", "None", "[]")
_OBJECT_TEXT = _Text('"<Object>"', "[]", "Object", "[]")


def execution_trace(
    log: Log, *, groups: Sequence[dict[str, Any]], header: dict[str, Any], device: str
) -> Iterator[bytes]:
    """Yield the gzipped execution trace.

    Args:
        log: The records.
        groups: Process groups as PyTorch's records.
        header: What the trace says of itself: family, rank, world size, device.
        device: Name of the device that tensors are said to be on.
    """
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    pending: list[str] = []
    size = 0
    for text in _document(log, groups, header, device):
        pending.append(text)
        size += len(text)
        if size > _CHUNK:
            yield packer.compress("".join(pending).encode())
            pending, size = [], 0
    yield packer.compress("".join(pending).encode())
    yield packer.flush()


def _document(log: Log, groups: Sequence[dict[str, Any]], header: dict[str, Any], device: str) -> Iterator[str]:
    yield f'{{"schema":"{SCHEMA}","chakra":{json.dumps(header)},"pid":0,"time":"","start_ts":0,"nodes":[\n'
    yield _plain(_PROCESS, _PROCESS, "[pytorch|profiler|execution_trace|process]", "", 0)
    yield ",\n" + _plain(_THREAD, _PROCESS, "[pytorch|profiler|execution_trace|thread]", "", 1)
    yield ",\n" + _plain(_GROUPS, _THREAD, "## process_group:init ##", json.dumps(list(groups)), 1)
    writer = _Writer(device)
    # A record's note takes the id after it.
    for place, record in enumerate(log.records):
        number = _first_id(place)
        yield ",\n"
        if isinstance(record, Op):
            yield writer.operator(number, record)
            if record.note is not None:
                text = json.dumps(record.note)
                yield ",\n" + _plain(number + 1, number, "## chakra:comm ##", text, record.stream + 1)
        elif isinstance(record, Wait):
            yield _plain(number, _THREAD, "## chakra:wait ##", json.dumps({"id": record.number}), record.stream + 1)
        elif isinstance(record, Sync):
            after = json.dumps({"after": _first_id(record.position - log.first)})
            yield _plain(number, _THREAD, "## chakra:sync ##", after, record.stream + 1)
    yield '\n],"finish_ts":0}\n'


def _first_id(place: int) -> int:
    return _GROUPS + 1 + 2 * place


def _plain(number: int, parent: int, name: str, text: str, thread: int) -> str:
    values = f'"inputs":{{"values":[{json.dumps(text)}],"shapes":[[]],"types":["String"],"strides":[[]]}}'
    return (
        f'{{"id":{number},"name":{json.dumps(name)},"ctrl_deps":{parent},{values if text else _NO_INPUTS},'
        f"{_NO_OUTPUTS},{_attributes(number, 7, thread, '')}}}"
    )


def _attributes(number: int, scope: int, thread: int, schema: str) -> str:
    return (
        f'"attrs":[{{"name":"rf_id","type":"uint64","value":{number}}},{{"name":"fw_parent","type":"uint64","value":0}},'
        f'{{"name":"seq_id","type":"int64","value":-1}},{{"name":"scope","type":"uint64","value":{scope}}},'
        f'{{"name":"tid","type":"uint64","value":{thread}}},{{"name":"fw_tid","type":"uint64","value":0}},'
        f'{{"name":"op_schema","type":"string","value":{json.dumps(schema)}}},'
        '{"name":"kernel_backend","type":"string","value":""},{"name":"kernel_file","type":"string","value":""},'
        '{"name":"tensor_range","type":"string","value":""}]'
    )


class _Function(NamedTuple):
    """What is the same for all calls of an operator: name, schema, arguments' names and texts of their defaults."""

    name: str
    schema: str
    arguments: tuple[str, ...]
    defaults: tuple[_Text, ...]


class _Writer:
    def __init__(self, device: str) -> None:
        self._device = device
        self._functions: dict[Any, _Function] = {}

    def operator(self, number: int, record: Op) -> str:
        function = self._functions.get(record.function)
        if function is None:
            function = self._functions[record.function] = self._describe(record.function)
        given = [self._text(value) for value in record.args]
        texts = [*given, *function.defaults[len(given) :]]
        for name, value in record.kwargs.items():
            texts[function.arguments.index(name)] = self._text(value)
        inputs, outputs = _side("inputs", texts), _side("outputs", [self._text(value) for value in record.outputs])
        scope = 1 if record.is_backward else 0
        return (
            f'{{"id":{number},"name":"{function.name}","ctrl_deps":{_THREAD},{inputs},{outputs},'
            f"{_attributes(number, scope, record.stream + 1, function.schema)}}}"
        )

    def _describe(self, function: Any) -> _Function:
        schema = function._schema
        arguments = schema.arguments
        defaults = tuple(
            self._text(argument.default_value) if argument.has_default_value() else _NONE for argument in arguments
        )
        return _Function(schema.name, str(schema), tuple(argument.name for argument in arguments), defaults)

    def _text(self, value: Any) -> _Text:
        if isinstance(value, Ref):
            return self._tensor(value)
        if value is None:
            return _NONE
        if isinstance(value, bool):
            return _Text("true" if value else "false", "[]", "Bool", "[]")
        if isinstance(value, int):
            return _Text(str(value), "[]", "Int", "[]")
        if isinstance(value, float):
            return _Text(json.dumps(value) if value == value and abs(value) != float("inf") else f'"{value}"', "[]",
                         "Double", "[]")  # fmt: skip
        if isinstance(value, list | tuple):
            return _list([self._text(item) for item in value])
        return self._other(value)

    def _other(self, value: Any) -> _Text:
        if value is OBJECT:
            return _OBJECT_TEXT
        if isinstance(value, str):
            return _Text(json.dumps(value), "[]", "String", "[]")
        if isinstance(value, torch.dtype):
            return _Text(str(_DTYPES.get(_name(value), ("", 6))[1]), "[]", "Int", "[]")
        if isinstance(value, torch.device):
            return _Text(f'"{self._device if value.type != "meta" else "meta"}"', "[]", "Device", "[]")
        if isinstance(value, torch.layout):
            return _Text(str(_LAYOUTS.get(_name(value), 0)), "[]", "Int", "[]")
        if isinstance(value, torch.memory_format):
            return _Text(str(_MEMORY_FORMATS.get(_name(value), 0)), "[]", "Int", "[]")
        if isinstance(value, torch.Generator):
            return _Text('"<Generator>"', "[]", "Generator", "[]")
        return _OBJECT_TEXT

    def _tensor(self, ref: Ref) -> _Text:
        shape = ref.shape
        name = _name(ref.dtype)
        value = f'[{ref.tensor},{ref.storage},{ref.offset},{prod(shape)},{ref.dtype.itemsize},"{self._device}"]'
        sizes, strides = ",".join(map(str, shape)), ",".join(map(str, ref.strides))
        return _Text(value, f"[{sizes}]", f"Tensor({_DTYPES.get(name, (name, 0))[0]})", f"[{strides}]")


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _list(items: list[_Text]) -> _Text:
    values, shapes, types, strides = zip(*items, strict=True) if items else ((), (), (), ())
    return _Text(
        f"[{','.join(values)}]", f"[{','.join(shapes)}]", f"GenericList[{','.join(types)}]", f"[{','.join(strides)}]"
    )


def _side(name: str, texts: list[_Text]) -> str:
    if not texts:
        return _NO_INPUTS if name == "inputs" else _NO_OUTPUTS
    values, shapes, types, strides = zip(*texts, strict=True)
    return (
        f'"{name}":{{"values":[{",".join(values)}],"shapes":[{",".join(shapes)}],'
        f'"types":["{_quoted(types)}"],"strides":[{",".join(strides)}]}}'
    )


def _quoted(types: tuple[str, ...]) -> str:
    return '","'.join(types)
