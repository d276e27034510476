/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated CUDA driver, inside.
 *
 * One process-wide lock, drv.lock, guards handles, contexts, streams and events; it is never held while a kernel, a copy
 * or a callback runs. vm.lock (in vm.c) guards the table of allocations, client.c serialises the machine's state. They
 * are taken in that order. Each stream with queued work has a thread of its own; each operation carries the (stream,
 * sequence number) pairs that it must wait for, so legacy default-stream rules and events are one mechanism.
 */
#ifndef VGPUMGR_CUDA_SIM_H
#define VGPUMGR_CUDA_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_tables.h"
#include "ptx.h"
#include "simstate.h"

enum {
	MAX_DEVICES = SIM_MAX_GPUS,
	MAX_LIMITS = CU_LIMIT_MAX,
	GRANULE = 2 << 20,          /* device memory is taken from the machine in 2 MiB pieces, as by the real driver */
	SUBALLOC_UNIT = 512,        /* alignment of small allocations */
	SUBALLOC_MAX = GRANULE / 2, /* larger ones get pieces of their own */
	WARP_SIZE = 32,
	MAX_THREADS_PER_BLOCK = 1024,
	MAX_PEERS = 64,             /* contexts whose memory one context may reach */
};

/* Attribute: runs the cleanup function when the variable leaves its scope. */
#define CLEANUP(function) __attribute__((cleanup(function)))

struct array;
struct context;
struct stream;
struct capture;
struct graph_node;
struct module;
struct physical;
struct pool;

/* A set of bits with search for runs of clear ones: bits.c. */
struct bits {
	uint64_t *words;
	size_t n;
};
int bits_init(struct bits *b, size_t n);
void bits_deinit(struct bits *b);
/* First run of `count` clear bits, set on return; SIZE_MAX if there is none. */
size_t bits_take(struct bits *b, size_t count);
void bits_release(struct bits *b, size_t first, size_t count);
bool bits_empty(const struct bits *b);

/* What the process sees as one CUDA device: a GPU or one compute instance. */
struct device {
	int ordinal;
	uint32_t gpu;
	int32_t gi_id, ci_id; /* -1: the whole GPU */
	char name[2 * SIM_NAME];
	CUuuid uuid, gpu_uuid; /* of the MIG device and of its GPU; the same for a whole GPU */
	uint64_t total_bytes;
	uint32_t sm_count, copy_engines;
	struct sim_gpu info; /* as at cuInit; the instances in it are not used later */
	/* client.c: this process in the machine's state */
	int slot, n_contexts, n_busy;
	/* vm.c: the reserved address range and its 2 MiB pieces in use */
	uint64_t va_base;
	struct bits va_used;
	int file;           /* that has the range's storage, */
	uint64_t file_base; /* from this address on */
	uint8_t *written; /* check.c: a byte for each of the range; NULL: nothing is checked */
	/* primary.c */
	struct context *primary;
	unsigned primary_refs, primary_flags;
	/* context.c: what a kernel failed with: the process makes no context there any more */
	CUresult lost;
	/* pool.c */
	struct pool *default_pool, *current_pool;
};

struct driver {
	pthread_mutex_t lock;
	bool initialised, forked;
	CUresult init_result;
	struct sim *sim;
	int version; /* 13000 */
	uint32_t checks; /* of ptx_check */
	int n_devices;
	struct device devices[MAX_DEVICES];
	struct context *contexts; /* the living ones */
};
extern struct driver drv;

/* driver.c */
/* Every API call but cuInit and a few getters starts with this. */
CUresult driver_check(void);
#define DRIVER_CHECK()                         \
	do {                                   \
		CUresult r_ = driver_check();  \
		if (r_ != CUDA_SUCCESS)        \
			return r_;             \
	} while (0)
static inline void drv_lock(void) { pthread_mutex_lock(&drv.lock); }
static inline void drv_unlock(void) { pthread_mutex_unlock(&drv.lock); }
static inline void drv_unlock_scope(int *unused)
{
	(void)unused;
	drv_unlock();
}
/* Holds drv.lock until the end of the scope. */
#define DRV_LOCKED() CLEANUP(drv_unlock_scope) int locked_ = (drv_lock(), 0); (void)locked_
struct device *device_find(CUdevice dev);
/* True in a thread that runs a host function of a stream: CUDA calls are not permitted there. */
extern _Thread_local bool in_callback;
/* Appends a line to the file that $VGPUMGR_SIM_LOG names, if any. The library itself prints only
 * what a failed assertion of a kernel says, and why it refuses a kernel. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t clock_ns(void);
/* Ids of contexts, streams and buffers: never used twice. */
uint64_t next_id(void);

/* visible.c: fills drv.devices from the machine and CUDA_VISIBLE_DEVICES. */
CUresult visible_devices(const struct sim_machine *m, const char *list);
bool parse_uuid(const char *text, CUuuid *uuid);

/* client.c: this process as the machine sees it. Returns CUDA codes. */
CUresult client_attach(struct device *dev);
void client_detach(struct device *dev);
CUresult client_charge(struct device *dev, uint64_t bytes);
void client_uncharge(struct device *dev, uint64_t bytes);
/* With drv.lock held. */
void client_busy(struct device *dev, int change);
CUresult client_memory(struct device *dev, uint64_t *free_bytes, uint64_t *total_bytes);

/* handle.c: the set of live handles by kind. With drv.lock held. */
enum handle_kind {
	HANDLE_CONTEXT = 1,
	HANDLE_STREAM,
	HANDLE_EVENT,
	HANDLE_MODULE,
	HANDLE_FUNCTION,
	HANDLE_KERNEL,
	HANDLE_LIBRARY,
	HANDLE_POOL,
	HANDLE_GRAPH,
	HANDLE_GRAPH_NODE,
	HANDLE_GRAPH_EXEC,
	HANDLE_LINKER,
	HANDLE_PHYSICAL,
	HANDLE_ARRAY,
	HANDLE_MIPMAP,
};
int handle_add(const void *object, enum handle_kind kind);
void handle_remove(const void *object);
bool handle_is(const void *object, enum handle_kind kind);

/* vm.c: allocations of device memory and of page-locked host memory, and what cuMemMap has mapped. */
enum allocation_kind { ALLOCATION_DEVICE, ALLOCATION_HOST, ALLOCATION_REGISTERED, ALLOCATION_MAPPED };
struct parked {
	struct parked *next;
	size_t first, count;
};
struct chunk {
	struct chunk *next;
	struct context *ctx; /* NULL: freed, but other processes still use it */
	struct device *dev;
	uint64_t addr, bytes;
	struct bits units; /* only in chunks that hold small allocations */
	unsigned lent;     /* to so many openings of other processes; until then nothing of it is given out again: */
	struct parked *parked; /* units that have been freed meanwhile */
	int line;          /* to the process that it is borrowed from; -1: it is our own */
};
struct allocation {
	uint64_t addr, size;
	enum allocation_kind kind;
	struct context *ctx; /* NULL: mapped, so of no context */
	uint64_t ctx_id;    /* of device memory */
	struct device *dev; /* of mapped memory */
	struct physical *physical;
	struct chunk *chunk;
	struct pool *pool;  /* cuMemAllocAsync */
	unsigned flags;     /* of host memory */
	uint64_t id;
	bool of_module, managed, sync_memops, freeing; /* freeing: cuMemFreeAsync is under way */
	bool borrowed;      /* from another process: cuIpcOpenMemHandle */
	uint32_t access;    /* of mapped memory: the devices that get at it, a bit each (cuMemSetAccess) */
};
/* Who is told of device memory; NULL where drv.checks is 0. With the table's lock held. */
struct vm_watch {
	void (*reserve)(struct device *dev);
	void (*allocated)(const struct allocation *a);
	void (*freed)(const struct allocation *a);
	void (*lent)(const struct allocation *a); /* or borrowed: other processes write to it unseen */
};
extern const struct vm_watch *vm_watch;
static inline bool is_host_memory(const struct allocation *a)
{
	return a->kind == ALLOCATION_HOST || a->kind == ALLOCATION_REGISTERED;
}
/* A fresh device allocation. */
CUresult vm_alloc(struct context *ctx, uint64_t size, bool of_module, uint64_t *addr);
/* Enters host memory into the table. Overlap with an entry: HOST_MEMORY_ALREADY_REGISTERED. */
CUresult vm_add_host(struct context *ctx, enum allocation_kind kind, uint64_t addr, uint64_t size, unsigned flags);
/* Takes out the allocation that starts at addr, if `may` says yes; *out gets what it was. */
CUresult vm_remove(uint64_t addr, bool (*may)(const struct allocation *), struct allocation *out);
/* managed.c: of memory that is freed. */
void advice_forget(const struct allocation *a);
/* Frees everything of a context; host memory too. */
void vm_remove_context(struct context *ctx);
/* The allocation that holds addr. */
bool vm_find(uint64_t addr, struct allocation *out);
/* Like vm_find, but for a change of its flags. */
bool vm_update(uint64_t addr, void (*change)(struct allocation *, const void *), const void *arg);
/* Is all of [addr, addr + size) inside one live allocation, or in mapped neighbours? It must be accessible where it is mapped. */
bool vm_contains(uint64_t addr, uint64_t size, struct allocation *out);
/* The same, and it is used meanwhile: what is there is neither freed nor unmapped before `use` has returned. */
bool vm_use(uint64_t addr, uint64_t size, void (*use)(void *), void *what);
/* Does addr belong to the reserved device ranges, live or not? */
bool vm_is_device_range(uint64_t addr);
CUresult vm_reserve(struct device *dev);
/* For check.c: the allocations below and above an address that lies in none; how much of a context is not freed. */
void vm_neighbours(uint64_t addr, struct allocation *below, struct allocation *above);
size_t vm_count(const struct context *ctx, uint64_t *bytes);
/* The addresses that cuMemAddressReserve gives out, taken from the process on first use; 0: there are none. */
uint64_t vm_arena(uint64_t *bytes);
/* Maps what is shared memory at `memory` to addresses of the arena, and enters it. */
CUresult vm_map(const struct allocation *a, const void *memory);
/* The mapping that starts at addr; its addresses stay readable, as freed memory does. */
void vm_unmap(uint64_t addr);

/* context.c */
struct print_buffer {
	char *text;
	size_t used, size;
};
struct context {
	struct context *next; /* in drv.contexts */
	unsigned refs; /* the living context, and each place in a thread's stack */
	struct device *dev;
	bool primary, destroyed;
	unsigned flags, api_version;
	CUresult error; /* sticky */
	uint64_t id, baseline_bytes;
	struct stream *streams, *legacy;
	struct module *modules;
	struct event *events;
	struct array *arrays; /* array.c */
	struct chunk *chunks; /* under vm.lock */
	uint64_t peers[MAX_PEERS]; /* ids */
	size_t limits[MAX_LIMITS];
	CUfunc_cache cache;
	CUsharedconfig shared_config;
	pthread_mutex_t print_lock;
	struct print_buffer print;
};
CUresult context_create(struct device *dev, unsigned flags, bool primary, struct context **out);
/* Waits for the context's work, then frees all that it owns. Without drv.lock. */
void context_destroy(struct context *ctx);

/* current.c */
/* The calling thread's current context, usable: not destroyed, not poisoned. */
CUresult context_enter(struct context **out);
/* As above, but of the given context where it is not NULL. */
CUresult context_of(CUcontext handle, struct context **out);
void context_unref(struct context *ctx);
struct context *context_current(void);
int context_push(struct context *ctx);
/* Takes the current context off the stack; the reference is then the caller's. NULL: there is none. */
struct context *context_pop(void);
/* `function` is called in every thread that ends and has had a context. */
void context_at_thread_end(void (*function)(void));
/* With drv.lock held: the first error stays. */
void context_poison(struct context *ctx, CUresult error);
void context_print(struct context *ctx, const char *text, size_t length);
/* Writes what kernels printed to stdout, as CUDA does at synchronisation. */
void context_flush_print(struct context *ctx);
#define CONTEXT_ENTER(ctx)                                 \
	struct context *ctx;                               \
	do {                                               \
		CUresult r_ = context_enter(&ctx);         \
		if (r_ != CUDA_SUCCESS)                    \
			return r_;                         \
	} while (0)

/* queue.c */
struct dependency {
	struct stream *stream;
	uint64_t seq;
};
struct op {
	struct op *next;
	struct stream *stream;
	uint64_t seq;
	struct dependency *deps;
	size_t n_deps;
	CUresult (*run)(struct op *op);     /* without locks; an error poisons the context */
	void (*release)(struct op *op);     /* with drv.lock held, after it ran or was skipped; frees op */
	bool always;                        /* runs on a poisoned context too */
	bool busy;                          /* is work of the GPU: counted as utilisation */
};
struct stream {
	struct stream *next; /* in the context's list */
	struct context *ctx;
	unsigned refs, flags;
	struct cuda_stream_attributes attributes; /* the priority among them; the others change nothing here */
	uint64_t id, submitted, completed;
	struct op *head, **tail;
	bool running, closing, has_worker, is_default; /* is_default: legacy or per-thread */
	bool given_up; /* destroyed, and what it waited for is gone: nothing behind that runs */
	struct capture *capture; /* capture.c; NULL: what is put into it is done */
	struct graph_node **tips; /* of the capture: what comes next waits for these */
	size_t n_tips;
	pthread_cond_t wake, done;
};
struct stream *queue_create(struct context *ctx, unsigned flags, int priority, bool is_default);
/* No more work; the worker ends after what is queued. The caller's reference goes. */
void queue_close(struct stream *s);
void stream_unref(struct stream *s);
int op_depend(struct op *op, struct stream *s, uint64_t seq);
/* All with drv.lock held. submit: on failure the operation has been released. */
CUresult queue_submit(struct stream *s, struct op *op);
/* Submits and waits; runs on the calling thread where nothing is before it. */
CUresult queue_run(struct stream *s, struct op *op);
/* Waits until seq has completed; drops drv.lock meanwhile. Returns the context's error. */
CUresult queue_wait(struct stream *s, uint64_t seq);
bool queue_idle(const struct stream *s);

/* stream.c: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD resolved. With drv.lock held. */
CUresult stream_get(struct context *ctx, CUstream handle, struct stream **out);
bool stream_is_legacy(CUstream handle);
/* Within the range that cuCtxGetStreamPriorityRange answers. */
int stream_clamp_priority(int priority);
/* Waits for all work of the context. Takes and drops drv.lock. Returns the context's error. */
CUresult context_drain(struct context *ctx);

/* event.c */
void event_free_context(struct context *ctx);
/* The record that an event waits for now, whatever becomes of the event; NULL: there is none. With drv.lock held. */
void *event_point(CUevent handle);
/* Whether it was reached; then it is freed. Without drv.lock. */
bool event_point_passed(void *point);

/* copy.c: every copy is this: depth slices of height rows of width bytes. */
struct plane {
	uint8_t *base;
	size_t pitch, slice;
	bool host, pinned; /* host memory; page-locked host memory */
};
struct copy {
	struct plane dst, src;
	size_t width, height, depth;
};
CUresult copy_submit(CUstream stream, const struct copy *copy, bool async);
/* `pinned`: host memory is used when the copy runs, whatever kind it is of. */
CUresult copy_sides(const struct cuda_copy *from, CUstream stream, bool async, bool pinned);
/* Of a graph: the launch takes nothing over, and waits for nothing. */
CUresult copy_node(const CUDA_MEMCPY3D *p, CUstream stream);
/* Checks [addr, extent) and says what kind of memory it is. */
CUresult plane_device(struct plane *p, uint64_t addr, const struct copy *extent);
CUresult plane_any(struct plane *p, uint64_t addr, const struct copy *extent);
void plane_host(struct plane *p, const void *addr, const struct copy *extent);
/* Bytes from the first to the last one that the copy touches in a plane; SIZE_MAX on overflow. */
size_t plane_extent(const struct plane *p, const struct copy *c);

/* image.c: what a program hands over as module: PTX out of any image, and the JIT's log. */
struct jit_log {
	char *error, *info;
	size_t error_size, info_size;
	size_t error_slot, info_slot; /* index of the size options, which receive the length; SIZE_MAX if absent */
	unsigned max_registers;       /* of each kernel; 0: as many as it would have */
};
CUresult image_text(const void *image, uint32_t cc, char **text, size_t *length, struct jit_log *log);
CUresult jit_options(unsigned n, const CUjit_option *options, void **values, struct jit_log *log);
void jit_error(struct jit_log *log, const char *message);
void jit_finish(struct jit_log *log, void **values);
/* Writes what the options ask of the compiler into a text, at its end: it holds for all that is made from the text. */
CUresult jit_apply(const struct jit_log *log, char **text, size_t *length);
CUresult ptx_to_cuda(enum ptx_status status);
CUresult fatbin_to_cuda(int status);
/* Reads a whole file; the caller frees. */
CUresult image_read_file(const char *path, void **data, size_t *length);

/* peer.c: the devices that may get at a device's memory, a bit each; itself is one. */
uint32_t peer_devices(const struct device *dev);
/* pool.c: whether a device gets at the memory of a pool. */
bool pool_permits(const struct pool *p, const struct device *dev);

/* module.c */
struct function {
	struct module *module; /* of a kernel of a library: NULL */
	struct library *library;
	struct ptx_kernel *kernel;
	struct ptx_kernel_info info;
	int max_dynamic_shared, carveout;
	int cluster[3], cluster_policy; /* as the program has set them */
	bool large_clusters;
	CUfunc_cache cache;
	bool told; /* why it is refused */
};
struct module {
	struct module *next;
	struct context *ctx;
	struct library *library; /* NULL: from cuModuleLoad */
	struct ptx_module *ptx;
	struct function *functions;
	size_t n_functions;
};
CUresult module_load_text(struct context *ctx, const char *text, size_t length, struct jit_log *log, struct module **out);
void module_destroy(struct module *m); /* with drv.lock held */
struct function *module_function(struct module *m, const char *name);
/* Fills an array of functions from a PTX module. */
int functions_create(struct ptx_module *ptx, enum handle_kind kind, struct function **out, size_t *n);
void functions_destroy(struct function *f, size_t n);
int function_registers(const struct function *f);
/* Clusters of more than 8 blocks are for programs that ask for it: they do not run on every device. */
enum { PORTABLE_CLUSTER = 8, LARGE_CLUSTER = 16, CLUSTERS_FROM_CC = 9 };
void function_clusters(const struct function *f, const struct device *dev, struct cuda_cluster_limits *out);
/* CUfunction or CUkernel -> function of the current context. */
CUresult function_get(CUfunction handle, struct context *ctx, struct function **out);
/* The same without a context, for what a kernel is by itself. */
CUresult function_info(const void *handle, struct function **out);
/* library.c: the module of a library in a context, loaded on first use. */
CUresult library_module(struct library *library, struct context *ctx, struct module **out);

/* occupancy.c */
CUresult occupancy_blocks(const struct device *dev, const struct function *f, int threads, size_t dynamic_shared, int *blocks);

/* attributes.c: per architecture */
struct arch_limits {
	uint32_t cc; /* 80 for 8.0 */
	int shared_per_sm, shared_optin, threads_per_sm, blocks_per_sm, l2_kib, bus_bits, dp_ratio, copy_engines;
};
const struct arch_limits *arch_limits(const struct device *dev);
enum { SHARED_PER_BLOCK = 48 << 10, SHARED_RESERVED = 1 << 10, REGISTERS_PER_SM = 65536 };

/* peer.c: may kernels of ctx reach device memory of the context with this id? */
bool peer_permits(struct context *ctx, uint64_t id);

static inline const struct device *allocation_device(const struct allocation *a)
{
	return a->ctx ? a->ctx->dev : a->dev;
}

/* virtual.c: the reserved addresses around this one; takes drv.lock. */
bool virtual_space(uint64_t addr, uint64_t *start, uint64_t *bytes);

/* device_memory.c; without drv.lock */
CUresult memory_allocate(struct context *ctx, size_t size, CUdeviceptr *out);
void memory_give(CUdeviceptr address);

/* array.c */
void array_free_context(struct context *ctx); /* with drv.lock held */
/* The part of an array that a copy touches. Takes drv.lock. */
CUresult array_plane(struct plane *p, const struct cuda_side *side, const struct cuda_copy *copy);

/* clock.c: around a kernel; on a machine without a clock they do nothing */
void clock_begin(struct device *dev, struct ptx_launch *launch);
void clock_end(struct device *dev, const struct ptx_launch *launch);

/* check.c. Its functions are called where drv.checks is not 0. */
CUresult check_init(void);
void check_filled(uint64_t addr, size_t bytes);
void check_copied(const struct copy *c);
void check_context_end(const struct context *ctx);
/* for the interpreter */
uint8_t *check_written(void *ctx, uint64_t addr);
void check_describe(void *ctx, uint64_t addr, uint32_t size, char *text, size_t length);

/* texture.c: for the interpreter */
bool texture_image(void *ctx, uint64_t object, struct ptx_image *out);
void texture_free_context(const struct context *ctx);

/* pool.c */
void pool_freed(struct pool *pool, uint64_t size); /* with drv.lock held */

#endif
