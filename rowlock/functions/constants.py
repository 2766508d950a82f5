"""Element types and numbers under the names of ``paddle``: ``paddle.float32``, ``paddle.pi``."""

from __future__ import annotations

import math

from ..strategies.types import VarType

bool = VarType.BOOL
uint8 = VarType.UINT8
int8 = VarType.INT8
int16 = VarType.INT16
int32 = VarType.INT32
int64 = VarType.INT64
float16 = VarType.FP16
bfloat16 = VarType.BF16
float32 = VarType.FP32
float64 = VarType.FP64
half, float, double = VarType.FP16, VarType.FP32, VarType.FP64
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None
