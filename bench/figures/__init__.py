# SPDX-License-Identifier: Apache-2.0
"""Figures of how each cause is recognised, drawn from simulated runs."""
