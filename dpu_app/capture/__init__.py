# SPDX-License-Identifier: Apache-2.0
"""Capture stage: packets of a network device, its counters and its clocks."""
