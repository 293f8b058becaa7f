from typing import Any

import numpy as np

__version__: str

def record_dtypes() -> dict[str, np.dtype[Any]]: ...
