"""Repeats of generated sequences with noise, and of real profiles without their markers."""

import numpy as np
import polars as pl
import pytest

from chakra_et.analysis.markers import marked_steps
from chakra_et.analysis.options import Options
from chakra_et.analysis.pattern import find_period, repeated_steps
from chakra_et.analysis.view import RankView
from chakra_et.conversion import convert

LAYER = ["norm", "qkv", "attention", "proj", "add", "norm", "up", "act", "down", "add"]
BACKWARD = ["d_add", "d_down", "d_act", "d_up", "d_norm", "d_add", "d_proj", "d_attention", "d_qkv", "d_norm", "reduce"]


def step(layers, tag=""):
    """One training step: layers forth and back, and an optimizer."""
    return [
        "load",
        "embed",
        *LAYER * layers,
        "head",
        "loss",
        *BACKWARD * layers,
        "d_embed",
        *["adam", tag or "adam"] * 4,
    ]


def test_exact_repeats():
    one = step(6)
    period = find_period(pl.Series(one * 5))
    assert period.length == len(one)
    assert period.starts.tolist() == [k * len(one) for k in range(5)]
    assert period.end == 5 * len(one)
    assert period.match == 1
    assert period.coverage == 1
    assert period.count == 5


def test_codes_do_as_well_as_names():
    names = pl.Series(step(4) * 3)
    codes = names.cast(pl.Categorical).to_physical().cast(pl.Int64)
    assert find_period(codes.to_numpy()).starts.tolist() == find_period(names).starts.tolist()


@pytest.mark.parametrize("layers", [1, 2, 12, 24, 48])
def test_a_step_is_found_and_no_layer(layers):
    one = step(layers)
    assert find_period(pl.Series(one * 4)).length == len(one)


@pytest.mark.parametrize("layers", [4, 24, 96])
def test_a_single_step_is_not_cut_into_layers(layers):
    assert find_period(pl.Series(step(layers))) is None
    decode = ["embed", "rotary", *LAYER * layers, "last_norm", "lm_head", "argmax"]
    assert find_period(pl.Series(decode)) is None


def test_decode_steps_are_found():
    one = ["embed", "rotary", *LAYER * 24, "last_norm", "lm_head", "argmax"]
    period = find_period(pl.Series(one * 7))
    assert (period.length, period.count) == (len(one), 7)


def test_a_single_step_with_something_rare_inside_is_not_cut_into_layers():
    names = [*LAYER * 12, *(f"odd_{k}" for k in range(5)), *LAYER * 12]
    assert find_period(pl.Series(names)) is None


def test_two_steps_in_one_are_one():
    """What is done every second step doesn't make a period of two, if it is little."""
    one = step(20)
    names = [*one, "log", *one] * 4
    period = find_period(pl.Series(names))
    assert period.count == 8
    assert period.length in (len(one), len(one) + 1)


def test_partial_steps_at_both_ends():
    one = step(6)
    names = one[-40:] + one * 3 + one[:50]
    idle = np.array([9 if name == "load" else 0 for name in names])
    period = find_period(pl.Series(names), idle_ns=idle)
    assert period.starts.tolist() == [40 + k * len(one) for k in range(3)]
    assert period.end == 40 + 3 * len(one)
    assert period.coverage == pytest.approx(3 * len(one) / len(names))


def test_the_longest_idle_time_on_average_begins_a_step():
    one = step(6)
    names = one[-40:] + one * 3 + one[:50]
    idle = np.zeros(len(names), np.int64)
    for k in range(4):
        idle[k * len(one) + 20] = 100 + k
        idle[k * len(one) + 35] = 90
    idle[100] = 250  # once only
    assert find_period(pl.Series(names), idle_ns=idle).starts[0] == 20


def test_building_the_optimizer_first_is_no_obstacle():
    one = step(8)
    names = [*one, *["fill"] * 30, *one * 12]
    period = find_period(pl.Series(names))
    assert period.length == len(one)
    assert period.starts[1:].tolist() == [len(one) * k + 30 for k in range(1, 13)]


@pytest.mark.parametrize("seed", range(6))
def test_odd_and_missing_kernels(seed):
    random = np.random.default_rng(seed)
    one = step(10)
    names, begins = [], []
    for _ in range(8):
        begins.append(len(names))
        part = list(one)
        for _ in range(3):
            place = int(random.integers(5, len(part) - 5))
            if random.random() < 0.5:
                del part[place]
            else:
                part[place:place] = ["sync", "log", "copy"][: int(random.integers(1, 4))]
        names += part
    idle = np.zeros(len(names), np.int64)
    idle[begins] = 50
    idle += random.integers(0, 5, len(names))
    period = find_period(pl.Series(names), idle_ns=idle)
    assert period.starts.tolist() == begins
    assert period.end == len(names)
    assert period.match > 0.97


def test_half_of_it_changed_is_no_repeat():
    random = np.random.default_rng(1)
    names = np.array(step(10) * 6, object)
    changed = random.random(len(names)) < 0.3
    names[changed] = [f"other_{k}" for k in random.integers(0, 50, int(changed.sum()))]
    assert find_period(pl.Series(names.tolist())) is None


def test_nothing_repeats():
    assert find_period(pl.Series([f"kernel_{k}" for k in range(500)])) is None
    assert find_period(pl.Series([], dtype=pl.String)) is None
    assert find_period(pl.Series(["a", "b"] * 3)) is None
    assert find_period(np.random.default_rng(0).integers(0, 40, 4000)) is None


def test_one_and_a_half_steps_are_no_repeat():
    one = step(6)
    assert find_period(pl.Series(one + one[: len(one) // 2])) is None


def activities_of(names, *, stream=7, pause=None):
    """Build a table of activities, back to back, with a pause before each step."""
    start, time = [], 0
    for name in names:
        time += 500 if name == pause else 2
        start.append(time)
        time += 10
    begin = pl.Series(start)
    return pl.DataFrame({"name": names, "start_ns": begin, "end_ns": begin + 10}).with_columns(
        device=pl.lit(0), stream=pl.lit(stream)
    )


def test_steps_of_the_busiest_stream_in_host_time():
    main = activities_of(step(4) * 3, pause="load")
    other = activities_of([f"x{k % 17}" for k in range(40)], stream=9)
    table = pl.concat([main, other]).sort("start_ns", maintain_order=True)
    issued = table["start_ns"].to_numpy() - 400
    steps, period = repeated_steps(table, issued_ns=issued)
    begins = main.filter(pl.col("name") == "load")["start_ns"]
    assert period.count == 3
    assert steps["iteration"].to_list() == [0, 1, 2]
    assert steps["begin_ns"].to_list() == (begins - 400).to_list()
    assert steps["end_ns"].to_list()[:2] == (begins - 400).to_list()[1:]
    assert steps["end_ns"][2] > main["start_ns"][-1] - 400
    on_device, _ = repeated_steps(table)
    assert on_device["begin_ns"].to_list() == begins.to_list()


def test_no_steps_of_few_or_strange_activities():
    assert repeated_steps(activities_of(["a"] * 3)) is None
    assert repeated_steps(activities_of([f"k{k}" for k in range(100)])) is None


REAL = {
    "kineto/nccl_2rank_a100.json.gz": 3,
    "kineto/ns_resolution_v100.json.gz": 5,
    "kineto/diff_control_a100.json.gz": 6,
    "kineto/cuda_graph_16rank_a100.json.gz": 5,
    # The profile began while the device still ran the step before that which is marked first.
    "kineto/resnet_8rank_mi300.json.gz": 4,
    "gloo-ddp2": 4,
    "gloo-fsdp2": 3,
}


# Here the host is steps ahead of the device, or waits inside a step, so that launches say little of when a step begins.
RUN_AHEAD = ("kineto/resnet_8rank_mi300.json.gz", "kineto/cuda_graph_16rank_a100.json.gz")


@pytest.mark.parametrize("name", REAL)
def test_real_profiles_without_their_markers(repository, name):
    path = repository.parent / "shared" / "traces" / name
    if not path.exists():
        pytest.skip("the folder of real profiles is absent")
    trace = next(iter(convert(path).traces))
    view = RankView(trace, 0, Options(iteration="whole"))
    table, issued = view.activities, view.issued_ns
    steps, period = repeated_steps(table, issued_ns=issued)
    assert period.count == REAL[name]
    assert period.match > 0.995
    marked = marked_steps(trace).table["begin_ns"].to_numpy()
    begins = steps["begin_ns"].to_numpy()
    assert (np.diff(begins) > 0).all()
    if name in RUN_AHEAD:
        return
    # A step launches the same thing at the same time after its marker.
    offset = begins - marked[np.searchsorted(marked, begins, side="right") - 1]
    length = np.median(np.diff(marked))
    assert offset.max() - offset.min() < 0.1 * length
    if not view.has_device:
        # On the host a step begins where its marker does.
        assert offset.max() < 1_000_000


@pytest.mark.parametrize("name", ["kineto/qwen_h100.json.gz", "megatron-tp8-a100", "kineto/eager_8rank_b200.json.gz"])
def test_real_single_steps_are_not_cut_into_layers(repository, name):
    path = repository.parent / "shared" / "traces" / name
    if not path.exists():
        pytest.skip("the folder of real profiles is absent")
    trace = next(iter(convert(path).traces))
    view = RankView(trace, 0, Options(iteration="whole"))
    assert repeated_steps(view.activities, issued_ns=view.issued_ns) is None
