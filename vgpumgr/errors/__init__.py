"""Every error an operator can meet: what happened, why, who is in the way, what to try.

A class per thing an operator can act on, with a stable id, an exit code and a hint; one file for each part of the
program. Every public class of those files is a name of this package.
"""

from vgpumgr.errors.api import *
from vgpumgr.errors.attachments import *
from vgpumgr.errors.base import *
from vgpumgr.errors.hardware import *
from vgpumgr.errors.hostdev import *
from vgpumgr.errors.layouts import *
from vgpumgr.errors.passthrough import *
from vgpumgr.errors.unexpected import *
from vgpumgr.errors.vgpu import *
