"""``vm xml``: a VM's definition as it is, or as it would be after an attach."""

from __future__ import annotations

from dataclasses import replace

from vgpumgr.daemon.attachment_documents import VmXmlDocument
from vgpumgr.daemon.explaining import explaining
from vgpumgr.daemon.hostdev_observing import list_instances, observe_host
from vgpumgr.daemon.parts import Parts, find_stuck_gpus
from vgpumgr.domain.affinity import find_nodes
from vgpumgr.domain.attaching import Attachable
from vgpumgr.domain.domain import Domain
from vgpumgr.domain.hypervisor import Scope, Vm
from vgpumgr.domain.preview import add_devices, render_domain
from vgpumgr.errors import PreviewImpossibleError
from vgpumgr.plan.attach import AttachObserved, AttachRequest
from vgpumgr.plan.backend import plan_any_attach
from vgpumgr.plan.domain_steps import AttachDevices
from vgpumgr.plan.step import Plan
from vgpumgr.plan.world import World

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


def _plan(parts: Parts, request: AttachRequest, vm: Vm) -> Plan[World]:
    records = parts.store.list_attachments()
    host = observe_host(parts, request, records)
    observed = AttachObserved(
        vm=vm,
        gpus=host.gpus,
        records=records,
        id=PREVIEW_ID,
        paths=parts.channels.paths(PREVIEW_ID),
        now_s=parts.clock.wall_s(),
        nodes=find_nodes(vm.config, parts.read_cpu_nodes),
        stuck=find_stuck_gpus(parts),
        instances=list_instances(parts),
    )
    return plan_any_attach(request, observed, host, [PREVIEW_UUID])[1]


def _add(definition: Domain, plan: Plan[World]) -> Domain:
    devices: list[Attachable] = []
    for step in plan.steps:
        if isinstance(step, AttachDevices) and step.scope is Scope.CONFIG:
            devices += step.devices
    return add_devices(definition, devices)
