"""Control groups of channels: what they hold, from inside a worker; both versions; and what is left of them: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.calls_rig import NULL_DRIVER, WORKER, start_python
from tests.unit.transport_rig import Rig, wait_for
from vgpumgr.host import cgroups
from vgpumgr.host.cgroups import LEAF, Cgroup, make_cgroups, name_cgroup, remove_cgroups
from vgpumgr.model.limits import Limits, parse_limits
from vgpumgr.virtio import sandbox
from vgpumgr.virtio.channel import ChannelSpec
from vgpumgr.virtio.keeper import KeeperChannels
