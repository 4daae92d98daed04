"""FLOP and bytes of operators, from the shapes and element types of their arguments.

Conventions: a multiply-add is 2 FLOP, an elementwise function 1 an element (families say more in their modules); bytes
are each distinct input once and each output once, the least that has to move where no cache holds anything yet.

The modules: `tensor`, `dtypes` and `arguments` read what a trace recorded; `matmul`, `grouped`, `convolution`,
`attention`, `normalization`, `embedding`, `elementwise`, `reduction`, `optimizer` and `streamed` are the families of
formulas; `table` joins them; `calls` is what others use.
"""

from __future__ import annotations

from chakra_et.analysis.op_work.calls import nearest_modelled, op_work, work_of
from chakra_et.analysis.op_work.work import OpWork

__all__ = ["OpWork", "nearest_modelled", "op_work", "work_of"]
