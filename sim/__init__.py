# SPDX-License-Identifier: Apache-2.0
"""Discrete-event simulation of RDMA training traffic, down to the header bytes at every NIC.

What is modelled, packet by packet: NIC egress with fair arbitration, link and switch queues, marks,
flow control towards a slow receiver, reliable connections with coalesced acknowledgements, go-back-N
and retry timeouts, slots and credits of a collective library with its proxy thread, ring, tree,
all-to-all and pairwise collectives with their true dependencies, compute with noise, clock errors and
stamps. A rank waits for another only because a packet, a credit or a buffer is missing.

What is not, and how to run it: ``docs/simulator.md``.
"""
