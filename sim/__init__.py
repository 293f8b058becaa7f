# SPDX-License-Identifier: Apache-2.0
"""Discrete-event simulation of RDMA training traffic, down to the header bytes at every NIC."""
