"""Families of ops: coarse names by which options opt in or out, and what this version can lower at all."""

from __future__ import annotations

import torch

aten = torch.ops.aten
prims = torch.ops.prims

VIEWS = frozenset({
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.t.default,
    aten.transpose.int, aten.expand.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.select.int, aten.slice.Tensor, aten.alias.default, aten.detach.default, aten.split.Tensor,
    aten.split_with_sizes.default, aten.unbind.int, aten.diagonal.default, aten.unfold.default,
})  # fmt: skip
"""Ops that only rename elements: free inside a region, and never a region of their own."""

_MATMUL = ("mm", "addmm", "bmm", "baddbmm", "_int_mm", "_scaled_mm", "mv", "dot", "linear", "addmv", "_grouped_mm", "_scaled_grouped_mm")
_CONVOLUTION = ("conv1d", "conv2d", "conv3d", "conv_")  # not "conv": convert_element_type
_COLLECTIVE_NAMESPACES = ("_c10d_functional", "c10d_functional", "symm_mem")
_SCAN = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_cummax_helper", "_cummin_helper", "associative_scan")
_REDUCTION = (
    "sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin", "var", "std", "var_mean", "std_mean", "norm",
    "xor_sum", "aminmax", "count_nonzero", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "nll_loss_forward", "logsumexp", "median", "mode", "linalg_vector_norm",
    "_foreach_norm", "_foreach_powsum", "_foreach_max",
)  # fmt: skip
_CAT = ("cat", "stack", "constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
        "replication_pad2d", "replication_pad3d", "_unsafe_index", "roll", "flip", "repeat")  # fmt: skip
_INDEX = (
    "index", "gather", "embedding", "index_select", "take", "embedding_dense_backward", "take_along_dim", "searchsorted",
    "bucketize",
)  # fmt: skip
_SCATTER = (
    "scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy", "index_fill", "slice_scatter",
    "select_scatter", "diagonal_scatter", "masked_scatter", "index_reduce", "_unsafe_index_put", "as_strided_scatter",
)  # fmt: skip
_CREATION = (
    "full", "zeros", "ones", "arange", "empty", "iota", "scalar_tensor", "full_like", "zeros_like", "ones_like", "eye", "linspace",
    "tri", "tril_indices", "triu_indices", "empty_like", "new_full", "new_zeros", "new_ones",
)  # fmt: skip
_RANDOM = (
    "inductor_random", "inductor_randint", "inductor_lookup_seed", "inductor_seeds", "inductor_force_stride_order", "rand", "randn",
    "bernoulli", "native_dropout", "rand_like", "randn_like", "randint",
)  # fmt: skip


def packet_name(target: object) -> str:
    """``aten.add`` for an overload of it; the plain string of anything else."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._schema.name.split('::')[1]}"
    return str(target)


def overload_name(target: object) -> str:
    """``aten.add.Tensor`` for that overload."""
    return f"{packet_name(target)}.{target._overloadname}" if isinstance(target, torch._ops.OpOverload) else str(target)


def family(target: object) -> str:
    """The family of an op; ``pointwise`` where nothing else fits."""
    name = packet_name(target)
    space, _, base = name.partition(".")
    if target in VIEWS:
        return "view"
    if space in _COLLECTIVE_NAMESPACES:
        return "collective"
    for names, result in (
        (_MATMUL, "matmul"), (_SCAN, "scan"), (_REDUCTION, "reduction"), (_CAT, "cat"), (_INDEX, "index"),
        (_SCATTER, "scatter"), (_CREATION, "creation"), (_RANDOM, "random"),
    ):  # fmt: skip
        if base in names:
            return result
    if "attention" in base:
        return "attention"
    return "convolution" if "convolution" in base or base.startswith(_CONVOLUTION) else "pointwise"


LEFT_TO_INDUCTOR = frozenset({"convolution", "collective"})
"""Families that this version has no nests for."""
PRODUCTS = frozenset({"matmul", "attention"})
"""Families that it has nests for where few rows make them loops over memory."""
