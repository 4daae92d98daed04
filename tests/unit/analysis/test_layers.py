"""Layers from module paths, annotations and repeats."""

import numpy as np
import polars as pl
import pytest

from chakra_et.analysis.layers import find_layers, layer_annotations, layers_of_paths, type_of

FORWARD = ["norm", "qkv", "attention", "proj", "add"]
BACKWARD = ["d_add", "d_proj", "d_attention", "d_qkv", "d_norm", "reduce", "cast"]


def test_forward_and_backward_are_two_stretches():
    names = ["load", "embed", *FORWARD * 12, "head", "loss", *BACKWARD * 12, "adam"]
    layers = find_layers(pl.Series(names))
    assert [(layer.begin, layer.end) for layer in layers if layer.stretch == 0] == [
        (2 + 5 * k, 7 + 5 * k) for k in range(12)
    ]
    assert [(layer.begin, layer.end) for layer in layers if layer.stretch == 1] == [
        (64 + 7 * k, 71 + 7 * k) for k in range(12)
    ]
    assert [layer.index for layer in layers] == [*range(12), *range(12)]


def test_layers_that_differ_in_one_kernel():
    names = [name if name != "attention" or k % 10 else "window" for k, name in enumerate(FORWARD * 20)]
    assert {layer.end - layer.begin for layer in find_layers(pl.Series(names))} <= {5, 10}


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"] * 100,
        [f"k{k}" for k in range(100)],
        FORWARD * 2,
        [*FORWARD * 3, *(f"k{k}" for k in range(400))],
    ],
)
def test_no_layers(names):
    assert find_layers(pl.Series(names, dtype=pl.String)) == ()


def test_noise_has_no_layers():
    assert find_layers(np.random.default_rng(0).integers(0, 30, 2000)) == ()


def test_layers_of_a_transformer():
    paths = ["LM_0/Model_0", "LM_0/Model_0/Embedding_0", "LM_0/Linear_9"]
    paths += [f"LM_0/Model_0/Block_{k}/{part}_{k}" for k in range(3) for part in ("Attention", "MLP")]
    assert layers_of_paths(paths) == {
        "LM_0/Model_0": "Model_0",
        "LM_0/Model_0/Embedding_0": "Embedding_0",
        "LM_0/Linear_9": "Linear_9",
        **{f"LM_0/Model_0/Block_{k}/{part}_{k}": f"Block_{k}" for k in range(3) for part in ("Attention", "MLP")},
    }


def test_recomputed_modules_belong_to_their_layer():
    paths = [f"DDP_0/Net_0/Wrapper_{k}/Sequential_{k}/Conv_{k}" for k in range(4)]
    found = layers_of_paths([*paths, "Sequential_2/Conv_2"])
    assert found["Sequential_2/Conv_2"] == "Wrapper_2"
    assert found[paths[1]] == "Wrapper_1"


def test_one_module_of_each_has_no_layers_but_names():
    assert layers_of_paths(["Net_0/Conv_0", "Net_0/Linear_0"]) == {"Net_0/Conv_0": "Net_0", "Net_0/Linear_0": "Net_0"}
    assert layers_of_paths([]) == {}


def test_annotations_with_numbers_are_layers():
    names = ["layer_0", "layer_1", "forward", "## blocks.3 fwd ##", "FSDP::pre_forward (blocks.0)", "h.4"]
    assert layer_annotations(names) == {
        "layer_0": "layer_0",
        "layer_1": "layer_1",
        "## blocks.3 fwd ##": "blocks.3",
        "FSDP::pre_forward (blocks.0)": "blocks.0",
        "h.4": "h.4",
    }
    assert layer_annotations(["layer_0", "loss"]) == {}


def test_type_of_a_layer():
    assert [type_of(name) for name in ("Block_12", "layers.3", "head", "Conv2d_1")] == [
        "Block",
        "layers",
        "head",
        "Conv2d",
    ]
