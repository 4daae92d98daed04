"""Names of kernels as people can read them."""

from __future__ import annotations

import re

__all__ = ["short_name"]

_PREFIX = re.compile(r"^(void |at::native::|at::cuda::|\(anonymous namespace\)::|std::|cutlass::Kernel2?<|c10::)+")
# What an elementwise or reduction kernel does stands among its template arguments.
_WORK = re.compile(r"\b(\w+_kernel_cuda|\w*Functor\w*|\w+_kernel_impl\b(?!_nocast)|\w+Ops?)\b")
_WRAPPERS = ("gpu_kernel_impl", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "TensorIteratorBase", "ReduceOp")


def short_name(name: str) -> str:
    """Return a kernel's name without what all kernels have: namespaces, template arguments, parameters.

    Example:
        >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)")
        'CUDAFunctor_add, vectorized_elementwise_kernel'
        >>> short_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)")
        'CatArrayBatchedCopy'
        >>> short_name("ampere_sgemm_128x64_nn"), short_name("aten::mm"), short_name("Memcpy HtoD (Pinned -> Device)")
        ('ampere_sgemm_128x64_nn', 'aten::mm', 'Memcpy HtoD (Pinned -> Device)')
    """
    plain = _PREFIX.sub("", name)
    if plain == name and "<" not in name:
        return name
    head = re.split(r"[<(]", plain, maxsplit=1)[0].rstrip(">").strip()
    if not head:
        return name
    words = [word for word in _WORK.findall(plain[len(head) :]) if word not in _WRAPPERS]
    # What tells them apart comes first.
    return f"{words[0]}, {head}" if words and re.search(r"elementwise|reduce|foreach|multi_tensor", head) else head
