# SPDX-License-Identifier: Apache-2.0
"""Named scenarios, presets, cluster files."""
