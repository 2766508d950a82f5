"""Mixed precision: which ops compute in float16 or bfloat16, and how training stays stable."""
