# SPDX-License-Identifier: Apache-2.0
"""How well ways to keep rates over time do at equal bytes."""
