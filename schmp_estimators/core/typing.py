"""Names of types that occur everywhere."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Function = Callable[..., Any]
Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]
Arguments = tuple[Any, ...]
IntPair = tuple[int, int]
FloatPair = tuple[float, float]
#: Values by their names: records, options, attributes.
Named = dict[str, Any]
#: Values by numbers, those of shards or blocks.
Numbered = dict[int, Any]
Array = NDArray[Any]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Integers = NDArray[np.int64]
Integers32 = NDArray[np.int32]
Unsigned32 = NDArray[np.uint32]
Masks = NDArray[np.bool_]
#: Indices as NumPy returns them.
Positions = NDArray[np.intp]
#: Integers of any width, with and without sign; topics have the narrowest type.
AnySigned = NDArray[np.signedinteger]
AnyIntegers = NDArray[np.integer]
