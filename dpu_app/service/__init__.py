# SPDX-License-Identifier: Apache-2.0
"""The service on a DPU: captures, measures, keeps frames until the controller has them."""
