"""Products that cuBLASLt computes, by family."""
