"""Every error an operator can meet: what happened, why, who is in the way, what to try.

A class per thing an operator can act on, with a stable id, an exit code and a hint. Every public class of the package's
files is a name of the package.
"""

from vgpumgr.errors.base import *
from vgpumgr.errors.hardware import *
from vgpumgr.errors.operations import *
from vgpumgr.errors.unexpected import *
