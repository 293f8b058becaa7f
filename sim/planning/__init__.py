# SPDX-License-Identifier: Apache-2.0
"""From a description to a plan that is complete before the simulation begins."""
