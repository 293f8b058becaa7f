# SPDX-License-Identifier: Apache-2.0
"""Simulated packets on network devices in scaled real time."""
