"""What the log of a real federation says, and what others publish of theirs."""

from policies.measured.log import Log, append_rows, read_log, read_spells
from policies.measured.published import (
    read_fedscale_availability,
    read_fedscale_devices,
    read_flower,
)

__all__ = [
    "Log",
    "append_rows",
    "read_fedscale_availability",
    "read_fedscale_devices",
    "read_flower",
    "read_log",
    "read_spells",
]
