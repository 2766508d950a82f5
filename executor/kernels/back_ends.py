"""The names of back ends: array modules, and the libraries that compute on their arrays."""

from __future__ import annotations

from collections.abc import Mapping

# Array module -> libraries that compute on its arrays, in the order in which they are preferred.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "numpy": ("onednn", "llvm", "xla"),
    "cupy": ("cudnn", "cublaslt", "cuda"),
}
# Other kernels of a library for ops that it has one for: none is chosen but where it was measured to be faster.
EXACT_VARIANT = "float32"  # rounds no factors, whatever the strategy asks for
WINOGRAD = "winograd"  # adds before it multiplies: rounded factors would lose too much
VARIANTS: Mapping[str, str] = {
    "windows": "onednn",
    "blocked": "onednn",
    EXACT_VARIANT: "onednn",
    WINOGRAD: "onednn",
}
BACK_ENDS = tuple(LIBRARIES)
ALL_LIBRARIES = tuple(name for names in LIBRARIES.values() for name in names)
ON_HOST = frozenset({"numpy", *LIBRARIES["numpy"], *VARIANTS})
ON_GPU = frozenset({"cupy", *LIBRARIES["cupy"]})

# Not a library: that the processor has instructions for products in bfloat16, as oneDNN found
BFLOAT16_PRODUCTS = "bfloat16"
EXACT = "the processors of the replicas have no instructions for products in bfloat16 (AVX512-BF16 or AMX)"
# Library -> to what it can round the factors of products
ROUNDS: Mapping[str, str] = {"onednn": "bfloat16", "cudnn": "tf32", "cublaslt": "tf32"}
# Array module -> what to do where no library rounds
REMEDIES: Mapping[str, str] = {
    "numpy": "oneDNN alone rounds factors. Install '.[cpu]' (Rowlock's folder) on every host and leave the op "
    "to it (onednn_enabled_op_types, build_cinn_pass)",
    "cupy": "cuBLASLt and cuDNN alone round factors. Install '.[gpu]' (in Rowlock's folder) on every host",
}
# Whose compiled loops leave products to oneDNN, where that is
PRODUCTS_BY_ONEDNN = frozenset({"fused_dot_product_attention"})


def library_of(kernel: str) -> str:
    """Return the library, or array module, whose kernel has this name."""
    return VARIANTS.get(kernel, kernel)
