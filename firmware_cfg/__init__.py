# SPDX-License-Identifier: Apache-2.0
"""How the agent gets onto a BlueField card: firmware settings, image hooks, packages, manifests."""
