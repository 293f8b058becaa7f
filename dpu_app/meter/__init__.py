# SPDX-License-Identifier: Apache-2.0
"""Measure stage: from batches of packets to frames."""
