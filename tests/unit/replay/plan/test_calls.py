"""Operators that are taken apart are what torch says they are."""

import pytest

from chakra_et.replay.plan.calls import COMPOSITES


def test_composites_call_other_operators_and_do_nothing_else():
    torch = pytest.importorskip("torch")
    key = "CompositeImplicitAutograd"
    wrong = []
    for name in sorted(COMPOSITES):
        schemas = torch._C._jit_get_schemas_for_operator(name)
        overloads = [name if not one.overload_name else f"{name}.{one.overload_name}" for one in schemas]
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(one, key) for one in overloads):
            wrong.append(name)
    assert wrong == []
