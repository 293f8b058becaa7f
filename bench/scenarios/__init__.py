# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the diagnosis: simulated runs whose truth is known, judged run by run."""
