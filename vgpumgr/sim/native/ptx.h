/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PTX on the CPU: parse a module, run its kernels. Reference: NVIDIA's PTX ISA manual.
 *
 * The interpreter owns no device memory: it asks its host for addresses (module variables) and has every global,
 * constant and generic access translated and checked by it. It knows nothing of CUDA contexts or streams.
 * What it cannot do it refuses by name and never guesses. A kernel that reaches an instruction that is not supported is
 * refused when it is launched (PTX_UNSUPPORTED); the module's other kernels run. A module in which no kernel can run is
 * refused when it is loaded, and so is a declaration that is not supported.
 */
#ifndef VGPUMGR_PTX_H
#define VGPUMGR_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx_image.h"

enum ptx_status {
	PTX_OK = 0,
	PTX_SYNTAX,          /* not PTX: CUDA_ERROR_INVALID_PTX */
	PTX_UNSUPPORTED,     /* an instruction or form we do not run; the message names it: CUDA_ERROR_INVALID_PTX */
	PTX_UNRESOLVED,      /* an extern that no module defines */
	PTX_NO_MEMORY,
	PTX_ILLEGAL_ADDRESS, /* CUDA_ERROR_ILLEGAL_ADDRESS */
	PTX_MISALIGNED,      /* CUDA_ERROR_MISALIGNED_ADDRESS */
	PTX_TRAP,            /* trap: CUDA_ERROR_LAUNCH_FAILED ("unspecified launch failure") */
	PTX_ASSERT,          /* __assertfail: CUDA_ERROR_ASSERT */
	PTX_BAD_LAUNCH,      /* grid, block or shared memory beyond limits: CUDA_ERROR_INVALID_VALUE */
	PTX_STACK_OVERFLOW,  /* calls too deep */
	PTX_CANCELLED,       /* *cancel became true */
	PTX_DEADLOCK,        /* no thread of a block can run: a barrier or shuffle that cannot complete */
};

struct ptx_error {
	enum ptx_status status;
	char message[512]; /* with line number, instruction and, at run time, kernel, block and thread */
	char assertion[1024]; /* PTX_ASSERT: the line that CUDA prints */
};

/* What the interpreter needs of the machine around it. `ctx` is passed through. All must be thread-safe. */
struct ptx_host {
	void *ctx;
	/* Host pointer for [addr, addr + size) if wholly inside one live allocation of this context, else NULL.
	 * *base and *length (where not NULL) receive that allocation's bounds, for the interpreter's cache. */
	void *(*translate)(void *ctx, uint64_t addr, uint64_t size, bool write, uint64_t *base, uint64_t *length);
	/* Device memory for a module's .global and .const variables; zeroed. 0: out of memory. */
	uint64_t (*alloc)(void *ctx, uint64_t size, uint64_t align);
	void (*free)(void *ctx, uint64_t addr);
	/* Output of printf in a kernel. */
	void (*print)(void *ctx, const char *text, size_t length);
	/* The texture or surface that a program's 64-bit object is. False, or NULL: there is none. */
	bool (*image)(void *ctx, uint64_t object, struct ptx_image *out);
	/* For checks; both may be NULL. What lies at an address of global memory, or nearest to it, in words. */
	void (*describe)(void *ctx, uint64_t addr, uint32_t size, char *text, size_t length);
	/* A byte for each byte from `addr` to its allocation's end: not 0 once it is written. NULL: unknown. */
	uint8_t *(*written)(void *ctx, uint64_t addr);
	/* The value of a graph's conditional handle; false, or NULL: there is none like it. */
	bool (*condition)(void *ctx, uint64_t handle, uint32_t value);
};

struct ptx_module;
struct ptx_kernel;

/* `text` need not end with NUL. On failure *out is NULL and err says what and where. */
int ptx_module_load(const char *text, size_t length, const struct ptx_host *host, struct ptx_module **out,
		    struct ptx_error *err);
void ptx_module_unload(struct ptx_module *module);
/* Whether it is a module, or a part of one: what it refers to may be missing. */
int ptx_check(const char *text, size_t length, struct ptx_error *err);

/* How many of its instructions the warp-wide engine has no form for, and runs for one lane after the other. */
uint32_t ptx_module_lane_instructions(const struct ptx_module *module);

/* A pragma at the end of a text, with a number: no kernel of the text has more registers, whatever it would have. */
#define PTX_MAX_REGISTERS "max_registers "

/* NULL if there is no such .entry. */
struct ptx_kernel *ptx_module_kernel(struct ptx_module *module, const char *name);
size_t ptx_module_kernel_count(const struct ptx_module *module);
struct ptx_kernel *ptx_module_kernel_at(struct ptx_module *module, size_t index);
/* A .global or .const variable. Returns false if there is none of that name. */
bool ptx_module_variable(struct ptx_module *module, const char *name, uint64_t *addr, uint64_t *size);

struct ptx_param {
	uint32_t offset, size, align;
};

struct ptx_kernel_info {
	const char *name;
	uint32_t n_params;
	const struct ptx_param *params;
	uint32_t param_bytes;  /* size of the whole parameter block */
	uint32_t static_shared_bytes, local_bytes, const_bytes, registers;
	uint32_t max_threads;  /* from .maxntid, else 1024 */
	uint32_t ptx_version;  /* 80 for .version 8.0 */
	uint32_t target;       /* 80 for sm_80 */
	uint32_t cluster[3];   /* blocks in a cluster, if it requires a number; or zeroes */
	uint32_t max_cluster;  /* .maxclusterrank; 0: none */
	const char *refusal;   /* why it cannot run, with line and instruction; NULL if it can */
	bool explicit_cluster; /* the launch or the kernel has to say how large clusters are */
};
void ptx_kernel_info(const struct ptx_kernel *kernel, struct ptx_kernel_info *info);

/* What is looked for while a kernel runs; findings are told on stderr. */
enum ptx_check { PTX_CHECK_MEMORY = 1, PTX_CHECK_RACE = 2, PTX_CHECK_SYNC = 4 };

struct ptx_launch {
	uint32_t grid[3], block[3];
	uint32_t dynamic_shared_bytes;
	const void *params;    /* the parameter block, param_bytes long */
	uint32_t sm_count;     /* %nsmid */
	const volatile bool *cancel; /* polled; may be NULL */
	uint64_t seed;         /* 0: the lanes of a warp run in step; else threads run in an order made from it */
	bool by_lane;          /* in step, but each instruction for one lane after the other: what the warp-wide engine is held against */
	/* Not 0: all blocks run at once, and may wait for each other. 64 zeroed bytes of device memory, which kernels find
	 * by %envreg1 and 2 (cooperative_groups/details/driver_abi.h of the CUDA toolkit). */
	uint64_t workspace;
	uint32_t cluster[3]; /* blocks in a cluster; zeroes: what the kernel requires, or 1 */
	uint32_t checks; /* of ptx_check; not 0: lane by lane, on one thread */
	/* Called now and then, and for nanosleep with its duration; NULL: kernels take no device time. */
	void (*pass)(void *argument, uint64_t ns);
	void *pass_argument;
};
/* Runs the whole grid on the calling thread (or on some of its own). Returns err->status. */
int ptx_run(struct ptx_kernel *kernel, const struct ptx_launch *launch, struct ptx_error *err);
/* How many findings the checks of all launches had: one for each kernel, instruction and kind. */
uint64_t ptx_findings(void);

#endif
