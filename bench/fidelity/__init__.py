# SPDX-License-Identifier: Apache-2.0
"""How well the analysis reconstructs and attributes simulated runs, against what really happened."""
