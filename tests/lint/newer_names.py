"""Names that the oldest supported versions do not have (rule M11)."""

from __future__ import annotations


def _below(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{name}" for name in names.split())


NEWER_TORCH = _below(
    "torch",
    "hash_tensor float4_e2m1fn_x2 optim.Muon nn.functional.grouped_mm nn.functional.scaled_mm nn.attention.varlen "
    "accelerator.memory_allocated accelerator.max_memory_allocated accelerator.empty_cache accelerator.memory_stats "
    "accelerator.get_memory_info accelerator.device_index accelerator.get_device_capability",
)

NEWER_NUMPY = _below(
    "numpy",
    "acos acosh asin asinh atan atan2 atanh concat permute_dims pow bitwise_count bitwise_invert bitwise_left_shift "
    "bitwise_right_shift isdtype astype unique_all unique_counts unique_inverse unique_values vecdot matvec vecmat "
    "cumulative_sum cumulative_prod unstack trapezoid bool long ulong matrix_transpose strings "
    "linalg.vector_norm linalg.matrix_norm linalg.vecdot linalg.matrix_transpose linalg.diagonal linalg.trace "
    "linalg.cross linalg.outer linalg.svdvals linalg.matmul linalg.tensordot exceptions.RankWarning",
)

NEWER_PYTHON = (
    _below(
        "typing",
        "Self Never LiteralString Required NotRequired Unpack TypeVarTuple assert_never assert_type reveal_type "
        "dataclass_transform get_overloads override TypeAliasType ReadOnly TypeIs",
    )
    | _below("enum", "StrEnum ReprEnum verify member nonmember EnumCheck")
    | _below("asyncio", "TaskGroup timeout Runner Barrier timeout_at")
    | _below("math", "cbrt exp2 sumprod fma")
    | frozenset(
        "tomllib datetime.UTC contextlib.chdir itertools.batched hashlib.file_digest warnings.deprecated "
        "operator.call collections.abc.Buffer http.HTTPMethod inspect.getmembers_static copy.replace".split()
    )
)
