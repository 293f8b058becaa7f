# SPDX-License-Identifier: Apache-2.0
"""Commands that write down how they were called, a card that remembers what it was told, and a DPU's /sys."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

# What scripts need of the system; everything else they call must be a fake.
_REAL = """
bash sh env cat mkdir chmod chown rm cp mv ln ls base64 sha256sum awk sed grep cut tr head tail sort uname
dirname basename jq sleep install id readlink stat find touch printf date sync tee wc xargs mktemp true test
python3
"""

_CARD = """#!{python}
import json, os, re, sys
folder = os.environ["FAKE_CARDS"]
with open(os.environ["FAKE_LOG"], "a") as log:
    print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=log)
arguments = [a for a in sys.argv[1:] if a not in ("-y", "-e")]
device = arguments[arguments.index("-d") + 1]
action, rest = arguments[2], arguments[3:]
path = os.path.join(folder, device.replace("/", "_") + ".json")
if not os.path.exists(path):
    print("-E- Failed to open the device"); sys.exit(3)
state = json.load(open(path))
def known(key):
    if key not in state["next"]:
        print(f"-E- The Device doesn't support {{key}} parameter"); sys.exit(3)
def shown(key, number):
    name = state["names"].get(key, {{}}).get(str(number))
    return f"{{name}}({{number}})" if name else str(number)
if action in ("q", "query"):
    [known(key) for key in rest]
    print("\\nDevice #1:\\n----------\\n\\nDevice type:    BlueField3\\nName:           FAKE")
    print("Device:         " + device + "\\n")
    verbose = "-e" in sys.argv
    columns = ("Default", "Current", "Next Boot") if verbose else ("Next Boot",)
    print(f"{{'Configurations:':<44}}" + "".join(f"{{c:<16}}" for c in columns).rstrip())
    for key in rest or state["next"]:
        values = [state[k][key] for k in (("default", "live", "next") if verbose else ("next",))]
        mark = "*" if len(set(values)) > 1 else " "
        print(f"{{mark}}        {{key:<35}} " + "".join(f"{{shown(key, v):<16}}" for v in values))
    print("The '*' shows parameters with next value different from default/current value.")
elif action in ("s", "set"):
    for pair in rest:
        key, _, value = pair.partition("=")
        known(key)
        if key not in state.get("stuck", []):
            state["next"][key] = int(value)
    json.dump(state, open(path, "w"))
    print("Applying... Done!\\n-I- Please reboot machine to load new configurations.")
else:
    print("-E- what?"); sys.exit(1)
"""

NAMES = {
    "INTERNAL_CPU_MODEL": {"0": "SEPARATED_HOST", "1": "EMBEDDED_CPU"},
    "INTERNAL_CPU_OFFLOAD_ENGINE": {"0": "ENABLED", "1": "DISABLED"},
    "INTERNAL_CPU_PAGE_SUPPLIER": {"0": "ECPF", "1": "EXT_HOST_PF"},
    "INTERNAL_CPU_ESWITCH_MANAGER": {"0": "ECPF", "1": "EXT_HOST_PF"},
    "INTERNAL_CPU_IB_VPORT0": {"0": "ECPF", "1": "EXT_HOST_PF"},
    "REAL_TIME_CLOCK_ENABLE": {"0": "False", "1": "True"},
    "PF_BAR2_ENABLE": {"0": "False", "1": "True"},
    "PER_PF_NUM_SF": {"0": "False", "1": "True"},
    "LINK_TYPE_P1": {"1": "IB", "2": "ETH"},
}
RIGHT = {
    "INTERNAL_CPU_MODEL": 1,
    "INTERNAL_CPU_OFFLOAD_ENGINE": 0,
    "INTERNAL_CPU_PAGE_SUPPLIER": 0,
    "INTERNAL_CPU_ESWITCH_MANAGER": 0,
    "INTERNAL_CPU_IB_VPORT0": 0,
    "REAL_TIME_CLOCK_ENABLE": 1,
    "PF_BAR2_ENABLE": 0,
    "PER_PF_NUM_SF": 1,
    "PF_TOTAL_SF": 236,
    "PF_SF_BAR_SIZE": 10,
    "LINK_TYPE_P1": 2,
    "CQE_COMPRESSION": 0,
}
# As a card comes from the factory in NIC mode.
FACTORY = RIGHT | {
    "INTERNAL_CPU_OFFLOAD_ENGINE": 1,
    "REAL_TIME_CLOCK_ENABLE": 0,
    "PER_PF_NUM_SF": 0,
    "PF_TOTAL_SF": 0,
}
# What must be set on such a card, in the order of the settings file.
FROM_FACTORY = [
    "INTERNAL_CPU_OFFLOAD_ENGINE=0",
    "REAL_TIME_CLOCK_ENABLE=1",
    "PER_PF_NUM_SF=1",
    "PF_TOTAL_SF=20",
]


class Machine:
    """A folder that stands for a machine: its PATH, its /sys, its cards, and the log of what was called."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "machine"
        self.bin = self.root / "bin"
        self.cards = self.root / "cards"
        self.log = self.root / "log"
        for path in (self.bin, self.cards):
            path.mkdir(parents=True)
        self.log.touch()
        for name in _REAL.split():
            real = shutil.which(name)
            if real:
                (self.bin / name).symlink_to(real)
        self.environment = {
            "PATH": str(self.bin),
            "FAKE_LOG": str(self.log),
            "FAKE_CARDS": str(self.cards),
            "PULSE_SYSROOT": str(self.root),
            "LC_ALL": "C",
            "HOME": str(self.root),
        }

    def calls(self, *names: str) -> list[list[str]]:
        """Return what was called in order, of the commands `names` or of all."""
        calls = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        return [call for call in calls if not names or call[0] in names]

    def forget(self) -> None:
        """Empty the log."""
        self.log.write_text("", encoding="utf-8")

    def fake(self, name: str, body: str = "") -> Path:
        """Add a command that logs its arguments and then does `body`, which is bash."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        log = 'jq -cn --args \'$ARGS.positional\' -- "${0##*/}" "$@" >>"$FAKE_LOG"'
        path.write_text(f"#!{shutil.which('bash')}\n{log}\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def fake_card_tool(self, name: str) -> None:
        """Add mlxconfig or mstconfig."""
        path = self.bin / name
        path.write_text(_CARD.format(python=sys.executable), encoding="utf-8")
        path.chmod(0o755)

    def add_card(
        self,
        device: str = "0000:03:00.0",
        live: dict[str, int] | None = None,
        coming: dict[str, int] | None = None,
        pci_id: str = "0xa2dc",
    ) -> Path:
        """Add a card to the PCI bus; its settings are the right ones unless told."""
        folder = self.root / "sys/bus/pci/devices" / device
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text("0x15b3\n", encoding="ascii")
        (folder / "device").write_text(f"{pci_id}\n", encoding="ascii")
        live = dict(RIGHT if live is None else live)
        state = {
            "default": {key: FACTORY.get(key, value) for key, value in live.items()},
            "live": live,
            "next": dict(live if coming is None else coming),
            "names": NAMES,
        }
        path = self.cards / f"{device}.json"
        path.write_text(json.dumps(state), encoding="utf-8")
        return path

    def power_cycle(self) -> None:
        """Make the next values of all cards the live ones."""
        for path in self.cards.glob("*.json"):
            state = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps(state | {"live": state["next"]}), encoding="utf-8")

    def make_dpu(self) -> None:
        """Make /sys look like that of a BlueField's Arm side."""
        (self.root / "sys/bus/platform/devices/MLNXBF17:00").mkdir(parents=True, exist_ok=True)
        for name in ("p0", "pf0hpf"):
            (self.root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)


def subprocess_environment(machine: Machine) -> dict[str, str]:
    """Return the environment for a Python program on this machine: its own PATH, the caller's Python."""
    kept = {key: value for key, value in os.environ.items() if key.startswith(("PYTHON", "COVERAGE"))}
    return kept | machine.environment
