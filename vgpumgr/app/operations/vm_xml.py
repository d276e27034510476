"""``vm xml``: a VM's definition as it is, or as it would be after an attach."""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.app.documents.attachments import VmXmlDocument
from vgpumgr.app.host_observation import list_instances
from vgpumgr.app.parts import Parts, find_stuck_gpus
from vgpumgr.app.refusal_hints import explaining
from vgpumgr.backends.attach import plan_attach
from vgpumgr.backends.base import NewAttachment, Target
from vgpumgr.domain.attaching import Attachable, add_devices, render_domain
from vgpumgr.domain.domain import Domain, find_nodes
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.engine.step import Plan
from vgpumgr.errors import PreviewImpossibleError
from vgpumgr.model.request import AttachRequest
from vgpumgr.planning.snapshot import Snapshot
from vgpumgr.steps.domain import AttachDevices

#: what stands for the attachment's id, and the UUID of a vGPU, which attach chooses
PREVIEW_ID = "preview"
PREVIEW_UUID = "00000000-0000-0000-0000-000000000000"
_OWN_NAMES = f'attach chooses the names that have "{PREVIEW_ID}" or zeros in them here'
_LIBVIRTS = "libvirt adds addresses, and the controllers that the devices need"


def render_vm_xml(parts: Parts, request: AttachRequest) -> VmXmlDocument:
    """The definition of the VM's next start; with a profile, as it would be after the attach.
    Nothing is touched. Raises what stands in the way of the attach.
    """
    vm = parts.hypervisor.read_vm(request.vm)
    definition = vm.config
    if definition is None:
        raise PreviewImpossibleError(
            f"{vm} has no definition",
            why="it is transient: what it has ends when it stops",
            hint=f"virsh dumpxml {vm.name}",
        )
    if not request.profile:
        return VmXmlDocument(vm=vm.name, xml=render_domain(definition), notes=[])
    with explaining(parts, request.gpu, request.profile):
        plan = _plan(parts, replace(request, live=False, config=True, add=True), vm)
    xml = render_domain(_add(definition, plan))
    return VmXmlDocument(vm=vm.name, xml=xml, notes=[*plan.notes, _OWN_NAMES, _LIBVIRTS])


def _plan(parts: Parts, request: AttachRequest, vm: Vm) -> Plan:
    name = NewAttachment(PREVIEW_ID, parts.channels.paths(PREVIEW_ID), PREVIEW_UUID)
    nodes = find_nodes(vm.config, parts.read_cpu_nodes)
    target = Target(vm, (name,), parts.clock.wall_s(), nodes)
    stuck, instances = find_stuck_gpus(parts), list_instances(parts)
    return plan_attach(request, target, Snapshot(parts, stuck=stuck, instances=instances))[1]


def _add(definition: Domain, plan: Plan) -> Domain:
    devices: list[Attachable] = []
    for step in plan.steps:
        if isinstance(step, AttachDevices) and step.scope is Scope.CONFIG:
            devices += step.devices
    return add_devices(definition, devices)
