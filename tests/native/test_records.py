# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from dpu_app.wire import records
from pulse_native import record_dtypes


@pytest.mark.parametrize("name", sorted(record_dtypes()))
def test_compiled_record_has_the_layout_that_python_states(name: str) -> None:
    assert record_dtypes()[name] == getattr(records, name)


def test_no_record_is_missing_on_either_side() -> None:
    stated = {
        name for name in vars(records) if name.isupper() and hasattr(getattr(records, name), "itemsize")
    }
    assert stated == set(record_dtypes())
