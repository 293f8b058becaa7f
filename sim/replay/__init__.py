# SPDX-License-Identifier: Apache-2.0
"""Recorded jobs as simulations."""
