"""What several analyses add up alike."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.analysis.expressions import known_sum, union_ns

SPANS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30)


def test_sums_of_what_nobody_knows():
    table = pl.DataFrame({"key": ["a", "a", "b"], "size": [1, None, None]}, schema={"key": str, "size": pl.Int64})
    found = table.group_by("key", maintain_order=True).agg(
        known_sum("size"), known_sum("size", pl.lit(True)).alias("all")
    )
    assert found.rows() == [("a", 1, 1), ("b", None, 0)]


@given(SPANS)
@settings(deadline=None)
def test_unions_count_each_ns_once_in_each_group(spans):
    spans.sort(key=lambda span: span[1])
    table = pl.DataFrame(
        [(key, start, start + length) for key, start, length in spans],
        schema=["key", "start_ns", "end_ns"],
        orient="row",
    )
    for key, total in table.group_by("key").agg(union_ns()).iter_rows():
        covered = {ns for one, start, length in spans if one == key for ns in range(start, start + length)}
        assert total == len(covered)
