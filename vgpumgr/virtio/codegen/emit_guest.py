"""C for the guest: a typed sender for each operation (``vg_stubs.h``) and the exported functions (``vg_stubs.c``)."""

from __future__ import annotations

from vgpumgr.virtio.codegen.emit_codec import banner, put, sides
from vgpumgr.virtio.codegen.model import BLOBS, CallClass, Function, Kind, Operation, Param, Spec

LOOKUPS = {
    "stream": "shim_stream",
    "event": "shim_event",
    "module": "shim_module",
    "function": "shim_function",
}


def _sender(o: Operation) -> str:
    """The C declaration of an operation's sender."""
    has = dict(sides(o))
    args = []
    if "request" in has:
        args.append(f"const struct vg_{o.name}_request *in")
    if "reply" in has:
        args.append(f"struct vg_{o.name}_reply *out")
    if o.bulk != "none":
        args.append("struct shim_bulk *bulk")
    return f"CUresult vg_send_{o.name}({', '.join(args) or 'void'})"


def emit_stubs_header(spec: Spec) -> str:
    """``vg_stubs.h``"""
    out = [banner(spec), "#ifndef VGPUMGR_STUBS_H\n#define VGPUMGR_STUBS_H\n"]
    out.append('#include "frame.h"\n#include "vg_ops.h"\n')
    out += [f"{_sender(o)};" for o in spec.operations]
    out.append(
        "/* What the description calls an operation. */\nconst char *vg_sent_name(uint32_t op);"
    )
    out.append("\n#endif")
    return "\n".join(out) + "\n"


def _channel(o: Operation) -> str:
    """Where a frame goes: to the device of its context, else of the first object that it names, else the thread's."""
    if o.context:
        return "shim_channel_by(in->context)"
    named = [f.name for f in o.request if f.kind in (Kind.HANDLE, Kind.MINT)]
    return f"shim_channel_by(in->{named[0]})" if named else "shim_channel()"


def _is_fixed(o: Operation) -> bool:
    """Whether a call is a few words each way, whatever it is called with: the shim has a short way for these."""
    fields = [f for _, side in sides(o) for f in side]
    return (
        o.call_class is CallClass.SYNC
        and o.bulk == "none"
        and not any(f.kind in BLOBS for f in fields)
    )


def _emit_exchange(o: Operation) -> list[str]:
    """The sender of such a call. All sizes are constants, so that the compiler drops the coders' checks."""
    has = dict(sides(o))
    out = [f"{_sender(o)}\n{{"]
    asked = told = "NULL, 0"
    if "request" in has:
        out.append(f"\tuint64_t asked[VG_MAX_{o.name}_request / 8];\n\tstruct vg_encoder e;")
        asked = "asked, sizeof(asked)"
    if "reply" in has:
        out.append(f"\tuint64_t told[VG_MAX_{o.name}_reply / 8];\n\tstruct vg_decoder d;")
        told = "told, sizeof(told)"
    out.append("\tstruct shim_told r;\n")
    if "request" in has:
        out.append("\tvg_encoder_init(&e, asked, sizeof(asked));")
        out.append(f"\tvg_put_{o.name}_request(&e, in);")
        out.append("\tif (vg_encoder_end(&e))\n\t\treturn CUDA_ERROR_INVALID_VALUE;")
    out.append(f"\tr = shim_exchange({_channel(o)}, VG_OP_{o.name}, {asked}, {told});")
    if "reply" in has:
        out.append("\tif (!r.has_data) {\n\t\tmemset(out, 0, sizeof(*out));")
        out.append("\t\treturn r.result;\n\t}")
        out.append("\tvg_decoder_init(&d, told, sizeof(told));")
        out.append(f"\tvg_get_{o.name}_reply(&d, out);")
        out.append("\treturn vg_decoder_end(&d) ? CUDA_ERROR_UNKNOWN : r.result;\n}\n")
    else:
        out.append("\treturn r.result;\n}\n")
    return out


def _is_posted(o: Operation) -> bool:
    """Whether a call is words without an answer: the shim has a short way for these, too, if they are few."""
    return o.call_class is CallClass.QUIET and o.bulk == "none" and bool(dict(sides(o)))


def _emit_post(o: Operation) -> list[str]:
    """The sender of such a call: words of its own, which go to the channel in one piece."""
    is_fixed = not any(f.kind in BLOBS for f in dict(sides(o))["request"])
    room = f"VG_MAX_{o.name}_request / 8" if is_fixed else "SHIM_KEY_MAX / 8"
    out = [f"{_sender(o)}\n{{", f"\tuint64_t asked[{room}];", "\tstruct vg_encoder e;"]
    size = "sizeof(asked)"
    if not is_fixed:
        size = "size"
        out.append(f"\tsize_t size = vg_size_{o.name}_request(in);")
        out.append(f"\n\tif (size > sizeof(asked))\n\t\treturn {_long_name(o)}(in);")
    else:
        out.append("")
    out.append("\tvg_encoder_init(&e, asked, sizeof(asked));")
    # here and not in a function of the codec's: with sizes that are constants the compiler drops the checks
    out += [put(f, "request", "&e", "in") for f in dict(sides(o))["request"]]
    out.append(f"\tif (e.failed || e.at != (uint8_t *)asked + {size})")
    out.append("\t\treturn CUDA_ERROR_INVALID_VALUE;")
    out.append(f"\treturn shim_post({_channel(o)}, VG_OP_{o.name}, asked, {size});\n}}\n")
    return out if is_fixed else [*_emit_frame(o, _long_name(o)), *out]


def _long_name(o: Operation) -> str:
    return f"send_long_{o.name}"


def _emit_sender(o: Operation) -> list[str]:
    if _is_fixed(o):
        return _emit_exchange(o)
    return _emit_post(o) if _is_posted(o) else _emit_frame(o)


def _emit_frame(o: Operation, name: str = "") -> list[str]:
    """The sender of a call of any kind and size; ``name`` is that of one that another sender calls."""
    has = dict(sides(o))
    declared = f"static {_sender(o).replace(f'vg_send_{o.name}', name)}" if name else _sender(o)
    out = [f"{declared}\n{{", "\tstruct shim_frame f;", "\tCUresult r;\n"]
    size = f"vg_size_{o.name}_request(in)" if "request" in has else "0"
    kind = {
        CallClass.QUIET: "SHIM_QUIET",
        CallClass.CACHED: "SHIM_CACHED",
        CallClass.SYNC: "SHIM_SYNC",
    }[o.call_class]
    bulk = "bulk" if o.bulk != "none" else "NULL"
    out.append(f"\tr = shim_begin(&f, {_channel(o)}, VG_OP_{o.name}, {kind}, {size}, {bulk});")
    # where the frame never gets through there is no reply, and the reply's fields are zero
    if "reply" in has:
        out.append("\tif (r != CUDA_SUCCESS) {\n\t\tmemset(out, 0, sizeof(*out));")
        out.append("\t\treturn r;\n\t}")
    else:
        out.append("\tif (r != CUDA_SUCCESS)\n\t\treturn r;")
    if "request" in has:
        out.append(f"\tvg_put_{o.name}_request(&f.encoder, in);")
    out.append("\tr = shim_send(&f);")
    if "reply" in has:
        out.append("\tif (shim_has_reply(&f))")
        out.append(f"\t\tvg_get_{o.name}_reply(&f.decoder, out);")
        out.append("\telse\n\t\tmemset(out, 0, sizeof(*out));")
    out.append(f"\treturn shim_end(&f, r, {'true' if 'reply' in has else 'false'});\n}}\n")
    return out


def _prototype(name: str, params: tuple[Param, ...]) -> str:
    return (
        f"SHIM_API CUresult {name}({', '.join(f'{p.c_type} {p.name}' for p in params) or 'void'})"
    )


def _stream_argument(p: Param) -> str:
    return f"{p.name} ? {p.name} : CU_STREAM_PER_THREAD" if p.c_type == "CUstream" else p.name


def _emit_variants(f: Function) -> list[str]:
    """Wrappers with another default stream: ``via`` adds the argument, ``_ptsz`` replaces a null one.

    What is ``via`` another waits for its end, which is not always permitted while streams are captured.
    """
    out = []
    if f.via:
        for suffix, stream in (
            ("", "CU_STREAM_LEGACY"),
            *((f"_{v}", "CU_STREAM_PER_THREAD") for v in f.variants),
        ):
            args = ", ".join([*(p.name for p in f.params), stream])
            out.append(
                f"{_prototype(f.name + suffix, f.params)}\n{{\n\tCUresult r = shim_capture_safe();\n\n"
                f"\treturn r == CUDA_SUCCESS ? {f.via}({args}) : r;\n}}\n"
            )
        return out
    for v in f.variants if f.operation else ():
        args = ", ".join(_stream_argument(p) for p in f.params)
        out.append(f"{_prototype(f'{f.name}_{v}', f.params)}\n{{\n\treturn {f.name}({args});\n}}\n")
    return out


def _emit_function(spec: Spec, f: Function) -> list[str]:
    o = spec.operation(f.operation)
    has = dict(sides(o))
    out = [f"{_prototype(f.name, f.params)}\n{{"]
    if "request" in has:
        out.append(f"\tstruct vg_{o.name}_request in = {{ 0 }};")
    if "reply" in has:
        out.append(f"\tstruct vg_{o.name}_reply out;")
    out.append(f"\tCUresult r = shim_enter({'&in.context' if o.context else 'NULL'});\n")
    for p in f.params:
        if p.name in f.outs:
            out.append(f"\tif (r == CUDA_SUCCESS && !{p.name})\n\t\tr = CUDA_ERROR_INVALID_VALUE;")
    for field in o.request:
        if field.kind is Kind.HANDLE:
            look = f"{LOOKUPS[field.handle]}({field.name}, &in.context, &in.{field.name})"
            out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = {look};")
        else:
            out.append(f"\tin.{field.name} = {field.name};")
    for name, most in f.most:
        out.append(f"\tif (r == CUDA_SUCCESS && (unsigned int){name} > {most})")
        out.append("\t\tr = CUDA_ERROR_INVALID_VALUE;")
    for x in o.ranges:
        rows, pitch = (x.rows, x.pitch) if x.rows else ("1", "0")
        check = f"shim_check_range(in.{x.param}, {x.count}, {x.factor}, {rows}, {pitch})"
        out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = {check};")
    args = ", ".join([a for a, s in (("&in", "request"), ("&out", "reply")) if s in has])
    out.append(f"\tif (r == CUDA_SUCCESS)\n\t\tr = vg_send_{o.name}({args});")
    if "reply" in has:
        out.append("\tif (r != CUDA_SUCCESS)\n\t\treturn r;")
        out += [f"\t*{field.name} = out.{field.name};" for field in o.reply]
        out.append("\treturn CUDA_SUCCESS;\n}\n")
    else:
        out.append("\treturn r;\n}\n")
    return out


def emit_stubs(spec: Spec) -> str:
    """``vg_stubs.c``"""
    out = [banner(spec), '#include "vg_stubs.h"\n\n#include <string.h>\n\n#include "captures.h"\n']
    out.append("const char *vg_sent_name(uint32_t op)\n{\n\tswitch (op) {")
    out += [f'\tcase VG_OP_{o.name}:\n\t\treturn "{o.name}";' for o in spec.operations]
    out.append('\tdefault:\n\t\treturn "an operation";\n\t}\n}\n')
    for o in spec.operations:
        out += _emit_sender(o)
    for f in spec.functions:
        if f.operation and f.generated_guest:
            out += _emit_function(spec, f)
        out += _emit_variants(f)
    return "\n".join(out)
