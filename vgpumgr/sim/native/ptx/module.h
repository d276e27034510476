/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoded form of a module, made once by the parser and read-only afterwards.
 *
 * A function is an array of instructions. Operands are slots: indices into the frame, an array of 64-bit cells that
 * holds the function's registers, and also its constants, symbol addresses and special registers, which the frame is
 * given when it is made. So no handler ever asks what kind of operand it has. Cells have no fixed width: a handler
 * truncates what it reads to its own type, and what lies above the type's width in a cell means nothing.
 */
#ifndef PTX_MODULE_H
#define PTX_MODULE_H

#include "arena.h"
#include "lex.h"

#include <ptx.h>

/*
 * A frame has its cells for the 32 lanes of a warp side by side: 32 of one register, 32 of the next. A slot counts cells, and a
 * thread's frame begins at its lane, so that r[slot] is that thread's register wherever an instruction looks.
 */
enum { WARP = 32 };

/* The 64-bit generic address space: everything below 2^56 is the host's. */
enum { WINDOW_SHIFT = 56 };
enum window { WINDOW_GLOBAL, WINDOW_SHARED, WINDOW_LOCAL, WINDOW_PARAM, WINDOW_CODE };
#define WINDOW(w) ((uint64_t)(w) << WINDOW_SHIFT)

enum type {
	T_NONE,
	T_PRED,
	T_B8, T_B16, T_B32, T_B64, T_B128,
	T_U8, T_U16, T_U32, T_U64,
	T_S8, T_S16, T_S32, T_S64,
	T_F16, T_F16X2, T_BF16, T_BF16X2, T_F32, T_F64,
	T_U16X2, T_S16X2,
	T_COUNT
};

enum space { SPACE_NONE, SPACE_REG, SPACE_GLOBAL, SPACE_CONST, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM, SPACE_GENERIC };

struct thread;
struct fragment;
struct insn;
/* Runs one instruction; returns the next one, or NULL when the thread cannot go on now. */
typedef const struct insn *handler(struct thread *t, uint64_t *r, const struct insn *i);

/* The same for all lanes of a fragment at once (simd.h). NULL: the lanes' program counters are set. */
typedef const struct insn *wide_handler(struct fragment *g, const struct insn *i);

struct insn {
	handler *run;
	wide_handler *wide;
	uint32_t d, a, b, c; /* slots */
	union {
		uint64_t imm;
		int64_t offset;            /* of an address */
		const void *ext;           /* what does not fit here, by handler */
		const struct insn *target; /* of a branch */
	};
	uint32_t line : 24;
	uint32_t span : 8; /* so many instructions from here on touch only the thread's registers and end behind the last of them */
	uint16_t flags;    /* by handler */
	uint8_t space, size;
};

/* Instruction flags shared by the floating-point handlers. */
enum { FLAG_FTZ = 1, FLAG_SAT = 2, FLAG_NAN = 4, FLAG_RELU = 8, FLAG_XORSIGN = 16, FLAG_ABS = 32, FLAG_ROUND_SHIFT = 8 };
/* Memory instructions. */
enum { FLAG_ADDRESS32 = 1, FLAG_BASE = 2 };

/* What a frame's cell holds before the first instruction. */
enum init_kind {
	INIT_VALUE,
	INIT_ADDRESS, /* of `symbol` plus value, resolved when the module is linked */
	INIT_SHARED,  /* shared-space address of `symbol` plus value: differs between kernels */
	INIT_FRAME,   /* local-space address of byte `value` of the frame */
	INIT_SPECIAL, /* special register number `value` */
};

struct init {
	enum init_kind kind;
	uint32_t slot;
	uint64_t value;
	struct symbol *symbol;
};

/* A formal parameter, a return value, or a .param variable of a function's body: bytes of the frame. */
struct param_var {
	struct text name;
	uint32_t offset, size, align;
};

struct function {
	struct symbol *symbol;
	bool entry, has_body, reachable;
	struct function *declared; /* as the unit that is parsed has it, where another one defined it before; or NULL */
	uint32_t line;
	struct insn *code;
	uint32_t n_code, cap_code;
	struct init *inits;
	uint32_t n_inits, cap_inits;
	uint32_t n_slots; /* registers: a frame has WARP cells for each */
	uint32_t *joins;  /* by instruction: where lanes that part there meet again; 0: nowhere */
	uint32_t frame_bytes; /* local memory of one call */
	struct param_var *params, *returns;
	uint32_t n_params, cap_params, n_returns, cap_returns;
	/* every function and shared variable named here, for the walk from the entries */
	struct symbol **uses;
	uint32_t n_uses, cap_uses;
	const char *unsupported; /* first instruction that we do not run */
	uint32_t unsupported_line;
	handler *builtin;
	uint32_t code_index; /* function pointers are WINDOW_CODE + 1 + code_index */
};

struct initialiser { /* an address to be written into a variable's image */
	uint32_t offset, size;
	int64_t addend;
	uint64_t mask; /* 0xff(offset) forms: byte of the address */
	uint32_t shift;
	struct symbol *symbol;
};

enum symbol_kind { SYMBOL_VARIABLE, SYMBOL_FUNCTION };

struct symbol {
	struct symbol *next; /* in its hash bucket */
	struct text name;
	enum symbol_kind kind;
	struct function *function;
	enum space space;
	bool is_extern, defined;
	uint64_t size;
	uint32_t align;
	uint64_t address;      /* global and const: device address */
	uint8_t *image;        /* initial bytes or NULL */
	struct initialiser *fixups;
	uint32_t n_fixups, cap_fixups;
	uint32_t shared_index; /* shared: place in ptx_kernel.shared_offset */
	uint32_t line;
	uint32_t born; /* the unit that declared it first */
	uint32_t unit; /* the unit that sees it; 0: all, UNIT_NONE: none */
	bool weak;
};

struct ptx_kernel {
	struct ptx_module *module;
	struct function *function;
	char *name;
	const char *refusal; /* names an instruction that we do not run, or NULL */
	struct ptx_param *params;
	uint32_t param_bytes, static_shared, local_bytes, max_threads;
	uint32_t *shared_offset; /* by symbol.shared_index */
	uint32_t req[3];         /* .reqntid or zeroes */
	uint32_t req_cluster[3]; /* .reqnctapercluster or zeroes */
	uint32_t max_cluster;    /* .maxclusterrank or 0 */
	bool explicit_cluster;
	uint32_t max_registers;  /* .maxnreg, or the compiler's option, whichever is less; 0: neither */
};

enum { BUCKETS = 256 };
#define UNIT_NONE UINT32_MAX

/* One text, or several that a linker has joined: each unit begins with its .version. */
struct ptx_module {
	struct ptx_host host;
	struct arena arena;
	const char *text;
	size_t length;
	uint32_t version, target;
	uint32_t unit; /* that is parsed; the last one */
	struct symbol *buckets[BUCKETS];
	struct symbol **symbols; /* in order of appearance */
	uint32_t n_symbols, cap_symbols;
	struct function **functions; /* by code_index */
	uint32_t n_functions, cap_functions;
	struct ptx_kernel *kernels;
	uint32_t n_kernels, cap_kernels;
	uint32_t first_kernel; /* of the unit */
	uint32_t n_shared, const_bytes;
};

uint32_t type_size(enum type type);
bool type_signed(enum type type);
bool type_float(enum type type);
/* T_NONE if `text` is no type. */
enum type type_named(struct text text);

/* The bucket of `symbols` that a name is in. */
uint32_t module_bucket(struct text name);
/* As the unit that is parsed sees it. */
struct symbol *module_find(const struct ptx_module *module, struct text name);

#endif
