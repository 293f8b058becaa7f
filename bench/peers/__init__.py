# SPDX-License-Identifier: Apache-2.0
"""Decision rules of published systems, run on what each of them would have seen; see ``docs/peers.md``."""
