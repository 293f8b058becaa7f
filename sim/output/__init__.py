# SPDX-License-Identifier: Apache-2.0
"""What is left of a simulation: captures, frames, records, truth."""
