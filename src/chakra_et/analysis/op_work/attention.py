"""Attention.

Forward 2 p (d + e) FLOP: the products Q K^T and P V over the p pairs of a query and a key that are used, with heads
of d and values of e numbers; 4 b h q k d where nothing is masked (as PyTorch's flop counter, which ignores masks).
Causal masks leave half of the square (Dao, FlashAttention-2, 2023, counts so). The softmax isn't counted.

Backward 2 p (3 d + 2 e): five products (the scores are computed anew), 2.5 times the forward call's.

Bytes: queries, keys, values, masks and results; the log-sum-exp row and seeds are left out.

Shape letters: b batch, h heads, q queries, k keys, d head size, e value size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chakra_et.analysis.op_work.arguments import Call
from chakra_et.analysis.op_work.tensor import Tensor
from chakra_et.analysis.op_work.work import NoModelError, OpWork, made

__all__ = ["MODELS"]


@dataclass(frozen=True, slots=True)
class Form:
    """How an operator takes its arguments.

    Attributes:
        causal: Position of the flag (or of a mask type, 0 for none); None: never recorded.
        sequence_axis: 2 for [b, h, q, d], 1 for [b, q, h, d].
        query: Position of the query; key and value follow.
        is_backward: True if the arguments begin with the result's gradient.
        offsets: Position of the queries' offsets, of packed sequences [all q, h, d]; the keys' follow.
        longest: Position of the longest sequence's queries; the keys' follows.
        window: Position of the number of keys to the left that are seen; those to the right follow.
        mask: Position of a mask or bias that is added to the scores.
    """

    causal: int | None
    sequence_axis: int = 2
    query: int = 0
    is_backward: bool = False
    offsets: int | None = None
    longest: int | None = None
    window: int | None = None
    mask: int | None = None


def _attention(form: Form) -> Callable[[Call], OpWork]:
    def formula(call: Call) -> OpWork:
        q, k, v = (call.tensor(form.query + index, 3, 4) for index in range(3))
        packed = len(q.shape) == 3
        if packed != (len(k.shape) == 3) or packed != (len(v.shape) == 3):
            raise NoModelError
        pairs, is_exact = _packed_pairs(call, form, q, k) if packed else _pairs(call, form, q, k)
        d, e = q.shape[-1], v.shape[-1]
        out = Tensor((*q.shape[:-1], e), q.kind)
        name = "attention" if is_exact else "attention (full or equal lengths assumed)"
        mask = None if form.mask is None else call.optional(form.mask)
        if not form.is_backward:
            return made(name, 2 * pairs * (d + e), reads=[q, k, v, mask], writes=[out], kind=q.kind, is_exact=is_exact)
        gradients = [Tensor(tensor.shape, tensor.kind) for tensor in (q, k, v)]
        reads = [call.tensor(0), q, k, v, out, mask]
        flop_count = 2 * pairs * (3 * d + 2 * e)
        return made(f"{name} backward", flop_count, reads=reads, writes=gradients, kind=q.kind, is_exact=is_exact)

    return formula


def _pairs(call: Call, form: Form, q: Tensor, k: Tensor) -> tuple[int, bool]:
    """Return the pairs of query and key, over all heads and batches; False with it if a mask is not known."""
    heads = q.shape[3 - form.sequence_axis]
    queries, keys = q.shape[form.sequence_axis], k.shape[form.sequence_axis]
    causal = None if form.causal is None else call.flag(form.causal)
    pairs = _unmasked(queries, keys, causal=bool(causal), window=_window(call, form, keys))
    return q.shape[0] * heads * pairs, causal is not None


def _packed_pairs(call: Call, form: Form, q: Tensor, k: Tensor) -> tuple[int, bool]:
    """Return the pairs of packed sequences, taken to be equally long: fewer there can't be."""
    offsets = None if form.offsets is None else call.optional(form.offsets)
    if offsets is None:
        if form.offsets is not None:
            raise NoModelError
        count = 1  # one sequence without a batch, [h, q, d] or [q, h, d]
        axis = form.sequence_axis - 1
        queries, keys, heads = q.shape[axis], k.shape[axis], q.shape[1 - axis]
        is_exact = True
    else:
        count = max(offsets.numel - 1, 1)
        queries, keys, heads = q.shape[0] // count, k.shape[0] // count, q.shape[1]
        longest = None if form.longest is None else call.number(form.longest)
        is_exact = longest is not None and longest * count == q.shape[0]
    causal = None if form.causal is None else call.flag(form.causal)
    pairs = _unmasked(queries, keys, causal=bool(causal), window=_window(call, form, keys))
    return count * heads * pairs, is_exact and causal is not None


def _unmasked(queries: int, keys: int, *, causal: bool, window: int) -> int:
    """Return the pairs that are used: with a causal mask, half of the square that ends at the last key."""
    square = min(queries, keys)
    pairs = (queries if not causal else square) * keys - (square * square // 2 if causal else 0)
    return min(pairs, queries * window)


def _window(call: Call, form: Form, keys: int) -> int:
    """Return how many keys a query may see."""
    if form.window is None:
        return keys
    left, right = call.number(form.window), call.number(form.window + 1)
    if left is None or left < 0 or right is None or right < 0:
        return keys if left is None or left < 0 else min(keys, int(left) + 1)
    return min(keys, int(left) + 1 + int(right))


def _paged(query: int, count: int) -> Callable[[Call], OpWork]:
    """Return the least that attention over a paged cache does.

    How long the cached contexts are stands in the server's tables, which no profile records: only that each token
    sees itself is certain.
    """

    def formula(call: Call) -> OpWork:
        q = call.tensor(query, 2, 3)
        reads = [call.optional(query + index) for index in range(count)]
        out = Tensor(q.shape, reads[-1].kind if reads[-1] else q.kind)
        name = "attention over a cache (contexts not recorded: each token sees itself)"
        return made(name, 4 * q.numel, reads=reads, writes=[out], kind=q.kind, is_exact=False)

    return formula


_FLASH = Form(causal=8, sequence_axis=1, offsets=3, longest=5, window=11)
_FLASH_BACKWARD = Form(causal=11, sequence_axis=1, query=1, is_backward=True, offsets=6, longest=8, window=15)
_TRI_DAO_BACKWARD = Form(causal=11, sequence_axis=1, query=1, is_backward=True, window=12)

MODELS: dict[str, Callable[[Call], OpWork]] = {
    "aten::scaled_dot_product_attention": _attention(Form(causal=5, mask=3)),
    "aten::_scaled_dot_product_attention_math": _attention(Form(causal=5, mask=3)),
    "aten::_scaled_dot_product_flash_attention": _attention(Form(causal=4)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(Form(causal=4)),
    "aten::_scaled_dot_product_efficient_attention": _attention(Form(causal=6, mask=3)),
    "aten::_scaled_dot_product_cudnn_attention": _attention(Form(causal=6, mask=3)),
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention(Form(causal=5, mask=3)),
    "aten::_flash_attention_forward": _attention(_FLASH),
    "aten::_efficient_attention_forward": _attention(Form(causal=9, sequence_axis=1, offsets=4, longest=6, mask=3)),
    "aten::_cudnn_attention_forward": _attention(Form(causal=10, mask=3)),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(Form(causal=11, query=1, is_backward=True)),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(Form(causal=7, query=1, is_backward=True)),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(
        Form(causal=11, query=1, is_backward=True, mask=4)
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(
        Form(causal=14, query=1, is_backward=True, mask=8)
    ),
    "aten::_cudnn_attention_backward": _attention(Form(causal=14, query=1, is_backward=True, mask=8)),
    "aten::_flash_attention_backward": _attention(_FLASH_BACKWARD),
    "aten::_efficient_attention_backward": _attention(
        Form(causal=14, sequence_axis=1, query=1, is_backward=True, offsets=6, longest=8, mask=4)
    ),
    "flash_attn::_flash_attn_forward": _attention(Form(causal=5, sequence_axis=1, window=6)),
    "flash_attn::_flash_attn_varlen_forward": _attention(
        Form(causal=9, sequence_axis=1, offsets=3, longest=5, window=10)
    ),
    "flash_attn::_flash_attn_backward": _attention(_TRI_DAO_BACKWARD),
    "flash_attn::_flash_attn_varlen_backward": _attention(
        Form(causal=15, sequence_axis=1, query=1, is_backward=True, offsets=9, longest=11, window=16)
    ),
    # Functions of Python's autograd: only their tensors are recorded.
    "FlashAttnFunc": _attention(Form(causal=5, sequence_axis=1)),
    "vllm::unified_attention": _paged(0, 3),
    "vllm::unified_attention_with_output": _paged(0, 3),
    "vllm::unified_mla_attention": _paged(0, 3),
    "sglang::unified_attention_with_output": _paged(0, 3),
    "_C::paged_attention_v1": _paged(1, 1),
    "_C::paged_attention_v2": _paged(4, 1),
}
