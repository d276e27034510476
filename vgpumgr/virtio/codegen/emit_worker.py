"""C for the worker: decode, check, execute, answer (``vg_dispatch.c``), and what is by hand (``vg_worker.h``)."""

from __future__ import annotations

from vgpumgr.virtio.codegen.emit_codec import banner, sides
from vgpumgr.virtio.codegen.model import CallClass, Field, Function, Kind, Operation, Spec


def _do(o: Operation) -> str:
    has = dict(sides(o))
    args = ["struct wk_call *c"]
    if "request" in has:
        args.append(f"const struct vg_{o.name}_request *in")
    if "reply" in has:
        args.append(f"struct vg_{o.name}_reply *out")
    return f"CUresult wk_do_{o.name}({', '.join(args)})"


def emit_driver(spec: Spec) -> str:
    """``vg_driver.h``: the driver functions that generated code calls."""
    out = [
        banner(spec),
        "#ifndef VGPUMGR_DRIVER_H\n#define VGPUMGR_DRIVER_H\n\n#define VG_WORKER_DRIVER(X) \\",
    ]
    out.append(
        " \\\n".join(
            f"\tX({n})" for n in sorted(o.name for o in spec.operations if not o.worker_by_hand)
        )
    )
    return "\n".join(out) + "\n\n#endif\n"


def emit_worker_header(spec: Spec) -> str:
    """``vg_worker.h``"""
    out = [banner(spec), "#ifndef VGPUMGR_WORKER_OPS_H\n#define VGPUMGR_WORKER_OPS_H\n"]
    out.append('#include "vg_ops.h"\n#include "worker.h"\n')
    out.append("/* By hand. */")
    out += [f"{_do(o)};" for o in spec.operations if o.worker_by_hand]
    out.append("\n/* How one operation is called; NULL: no such operation. */")
    out.append("const struct wk_operation *wk_operation(uint32_t op);\n\n#endif")
    return "\n".join(out) + "\n"


def _argument(o: Operation, f: Function, name: str) -> str:
    fields = {x.name: x for x in o.request}
    if name in f.outs:
        return (
            f"&out->{name}"
            if {x.name: x for x in o.reply}[name].kind is not Kind.U64
            else f"(void *)&out->{name}"
        )
    field = fields[name]
    if field.kind is Kind.MINT:
        return "(void *)&made"
    return f"wk_raw({name})" if field.kind is Kind.HANDLE else f"in->{name}"


def _run(spec: Spec, o: Operation) -> list[str]:
    """The body of a generated operation: hold the objects, check the ranges, call the driver."""
    function = next(f for f in spec.functions if f.operation == o.name)
    out = [f"static {_do(o)}\n{{", "\tCUresult r = CUDA_SUCCESS;"]
    handles = [x for x in o.request if x.kind is Kind.HANDLE]
    mint = next((x for x in o.request if x.kind is Kind.MINT), None)
    out += [f"\tstruct wk_object *{x.name} WK_HELD = NULL;" for x in handles]
    if mint:
        out.append("\tvoid *made = NULL;")
    out.append("")
    for x in handles:
        out.append("\tif (r == CUDA_SUCCESS)")
        out.append(f"\t\tr = wk_hold(c, WK_{x.handle.upper()}, in->{x.name}, &{x.name});")
    for g in o.ranges:
        rows, pitch = (f"in->{g.rows}", f"in->{g.pitch}") if g.rows else ("1", "0")
        out.append("\tif (r == CUDA_SUCCESS)")
        out.append(
            f"\t\tr = wk_check_range(c, in->{g.param}, in->{g.count}, {g.factor}, {rows}, {pitch});"
        )
    args = ", ".join(_argument(o, function, p.name) for p in function.params)
    call = f"wk_driver.{o.name}({args})"
    if mint:
        kind = f"WK_{mint.handle.upper()}"
        out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = wk_charge({kind}, 0);")
        call = f"wk_charged({kind}, 0, {call})"
    out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = {call};")
    if mint:
        out.append(
            f"\tif (r == CUDA_SUCCESS)\n\t\tr = wk_fill(c, {kind}, in->{mint.name}, made, 0);"
        )
    out.append("\treturn r;\n}\n")
    if "in->" not in "\n".join(out[1:]) and "request" in dict(sides(o)):
        out[-1] = "\t(void)in;\n" + out[-1]
    if "(c," not in "\n".join(out[1:]):
        out[-1] = "\t(void)c;\n" + out[-1]
    return out


def _reserve(x: Field) -> str:
    return f"\tif (wk_reserve(c, WK_{x.handle.upper()}, in.{x.name}))\n\t\treturn -EPROTO;"


def _handle(o: Operation) -> list[str]:
    has = dict(sides(o))
    out = [f"static int handle_{o.name}(struct wk_call *c, bool check_only)\n{{"]
    if "request" in has:
        out.append(f"\tstruct vg_{o.name}_request in;")
    if "reply" in has:
        out.append(f"\tstruct vg_{o.name}_reply out;")
        out.append(
            f"\tuint8_t data[VG_MAX_{o.name}_reply];\n\tstruct vg_encoder e;\n\tsize_t size = 0;"
        )
    out.append("\tstruct vg_decoder d;\n\tCUresult r;\n")
    out.append("\tvg_decoder_init(&d, c->call->payload, c->call->payload_length);")
    if "request" in has:
        out.append(f"\tvg_get_{o.name}_request(&d, &in);")
    out.append("\tif (vg_decoder_end(&d))\n\t\treturn -EPROTO;\n\tif (check_only)\n\t\treturn 0;")
    out += [_reserve(x) for x in o.request if x.kind is Kind.MINT]
    if "reply" in has:
        # a reply begins as zeros: nothing of the worker's memory leaves it
        out.append("\tmemset(&out, 0, sizeof(out));")
    out.append(f"\tr = wk_begin(c, {'in.context' if o.context else '0'});")
    args = ", ".join(
        ["c", *(["&in"] if "request" in has else []), *(["&out"] if "reply" in has else [])]
    )
    out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = wk_do_{o.name}({args});")
    if "reply" in has:
        condition = "true" if o.reply_always else "r == CUDA_SUCCESS"
        out.append(f"\tif ({condition}) {{\n\t\tsize = vg_size_{o.name}_reply(&out);")
        out.append(
            f"\t\tvg_encoder_init(&e, data, size <= sizeof(data) ? size : 0);\n\t\tvg_put_{o.name}_reply(&e, &out);"
        )
        out.append("\t\tif (vg_encoder_end(&e))\n\t\t\tr = CUDA_ERROR_UNKNOWN, size = 0;\n\t}")
        out.append("\treturn wk_finish(c, r, data, size);\n}\n")
    else:
        out.append("\treturn wk_finish(c, r, NULL, 0);\n}\n")
    return out


def _flags(o: Operation) -> str:
    flags = [
        ("WK_QUIET", o.call_class is CallClass.QUIET),
        ("WK_IN_CONTEXT", o.context),
        ("WK_BLOCKING", o.blocking),
        ("WK_RUN_AFTER_ERROR", o.run_after_error),
        ("WK_BULK_IN", o.bulk == "in"),
        ("WK_BULK_OUT", o.bulk == "out"),
        ("WK_WORK", o.work),
    ]
    return " | ".join(n for n, on in flags if on) or "0"


def emit_dispatch(spec: Spec) -> str:
    """``vg_dispatch.c``"""
    out = [banner(spec), '#include "vg_worker.h"\n\n#include <errno.h>\n#include <string.h>\n']
    for o in spec.operations:
        if not o.worker_by_hand:
            out += _run(spec, o)
        out += _handle(o)
    out.append("const struct wk_operation *wk_operation(uint32_t op)\n{\n\tswitch (op) {")
    for o in sorted(spec.operations, key=lambda o: o.id):
        out.append(f"\tcase VG_OP_{o.name}: {{")
        out.append(
            f'\t\tstatic const struct wk_operation it = {{ "{o.name}", handle_{o.name}, {_flags(o)} }};'
        )
        out.append("\t\treturn &it;\n\t}")
    out.append("\tdefault:\n\t\treturn NULL;\n\t}\n}")
    return "\n".join(out) + "\n"
