"""Safetensors → ONNX: the BERT graph of all-MiniLM-L6-v2, written by hand, without torch.

The graph is made of ONNX Runtime's fused operators (domain ``com.microsoft``, see *ContribOperators.md* in
ONNX Runtime's documentation): embeddings with their LayerNorm, attention with its projections, bias + GELU, and
residual + LayerNorm are one node each. Mean pooling and L2 normalisation are nodes too, so one run goes from
token ids to unit vectors. On two cores it is about twice as fast as PyTorch.

The output depends on the weights alone: names, order, opsets and serialisation are fixed, so its digest is pinned in
``weights``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS = 6
HEADS = 12
DIMENSION = 384
_EPSILON = 1e-12
_OPSET = 18
_IR_VERSION = 9
_FUSED = "com.microsoft"

Weights = dict[str, Any]


class _Graph:
    """Collects nodes and initialisers; every method that adds one returns its name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, name: str, array: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, list(outputs), domain=domain, **attributes))
        return outputs[0]


def convert(safetensors: Path) -> bytes:
    """Return the ONNX model of `safetensors`, all-MiniLM-L6-v2 as Hugging Face ships it.

    Inputs are ``input_ids`` and ``attention_mask``, ``int32`` of shape ``(batch, tokens)``, padded on the right. The
    output ``embedding`` is ``float32`` of shape ``(batch, 384)``, L2-normalised.
    """
    from safetensors.numpy import load_file

    weights = load_file(safetensors)
    graph = _Graph()
    states = _embeddings(graph, weights)
    for layer in range(LAYERS):
        states = _layer(graph, weights, layer, states)
    _pool(graph, states)
    return _serialise(graph)


def _embeddings(graph: _Graph, weights: Weights) -> str:
    # A single text has one segment: its row is added to the positions here instead of at every run.
    positions = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    places = graph.constant("positions", positions)
    norm = _norm(graph, weights, "embeddings", "embeddings")
    inputs = ["input_ids", "", words, places, "", *norm, "attention_mask"]
    return graph.add("EmbedLayerNormalization", inputs, "embedded", "lengths", domain=_FUSED, epsilon=_EPSILON)


def _norm(graph: _Graph, weights: Weights, name: str, source: str) -> list[str]:
    """Return scale and shift of a LayerNorm."""
    parts = {"scale": "weight", "shift": "bias"}
    return [graph.constant(f"{name}.{mine}", weights[f"{source}.LayerNorm.{its}"]) for mine, its in parts.items()]


def _layer(graph: _Graph, weights: Weights, index: int, states: str) -> str:
    name, source = f"layer{index}", f"encoder.layer.{index}"
    attended = _attention(graph, weights, name, source, states)
    projected = _matmul(graph, weights, f"{name}.projected", f"{source}.attention.output.dense", attended)
    states = _residual(graph, weights, f"{name}.attended", f"{source}.attention.output", [projected, states])
    inner = _matmul(graph, weights, f"{name}.inner", f"{source}.intermediate.dense", states)
    bias = graph.constant(f"{name}.inner.bias", weights[f"{source}.intermediate.dense.bias"])
    active = graph.add("BiasGelu", [inner, bias], f"{name}.active", domain=_FUSED)
    outer = _matmul(graph, weights, f"{name}.outer", f"{source}.output.dense", active)
    return _residual(graph, weights, f"{name}.states", f"{source}.output", [outer, states])


def _attention(graph: _Graph, weights: Weights, name: str, source: str, states: str) -> str:
    import numpy as np

    parts = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
    weight = np.concatenate([weights[f"{part}.weight"].T for part in parts], axis=1)
    bias = np.concatenate([weights[f"{part}.bias"] for part in parts])
    inputs = [states, graph.constant(f"{name}.qkv", weight), graph.constant(f"{name}.qkv.bias", bias), "lengths"]
    return graph.add("Attention", inputs, f"{name}.attention", domain=_FUSED, num_heads=HEADS)


def _matmul(graph: _Graph, weights: Weights, name: str, source: str, states: str) -> str:
    weight = graph.constant(f"{name}.weight", weights[f"{source}.weight"].T)
    return graph.add("MatMul", [states, weight], name)


def _residual(graph: _Graph, weights: Weights, name: str, source: str, inputs: list[str]) -> str:
    norm = _norm(graph, weights, name, source)
    bias = graph.constant(f"{name}.bias", weights[f"{source}.dense.bias"])
    return graph.add("SkipLayerNormalization", [*inputs, *norm, bias], name, domain=_FUSED, epsilon=_EPSILON)


def _pool(graph: _Graph, states: str) -> None:
    # The sum over real tokens stands for their mean: the division by their number cancels in the L2 norm.
    import numpy as np
    from onnx import TensorProto

    axis = graph.constant("axis", np.array([1], np.int64))
    mask = graph.add("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    row = graph.add("Unsqueeze", [mask, axis], "mask.row")
    total = graph.add("MatMul", [row, states], "total.row")
    total = graph.add("Squeeze", [total, axis], "total")
    graph.add("LpNormalization", [total], "embedding", axis=-1, p=2)


def _serialise(graph: _Graph) -> bytes:
    from onnx import TensorProto, helper

    shape = ["batch", "tokens"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", DIMENSION])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, [output], graph.initializers),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_FUSED, 1)],
        ir_version=_IR_VERSION,
    )
    return bytes(model.SerializeToString(deterministic=True))
