/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's libcuda.so.1. It never exits, aborts or touches signals. It prints what kernels print, and once each why there
 * is no GPU, what a runtime's private tables mean, and the name of a function that is not supported (VGPUMGR_QUIET: not
 * even that). Threads may call all of it at once; a child made by fork() after cuInit() gets CUDA_ERROR_NOT_INITIALIZED,
 * as with the vendor's driver.
 */
#ifndef VGPUMGR_SHIM_H
#define VGPUMGR_SHIM_H

#include <cuda.h>
#include <cuda_rules.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <transport.h>

#include "channels.h"
#include "objects.h"
#include "vg_stubs.h"

#define SHIM_API __attribute__((visibility("default")))

enum {
	/* No newer version is announced than the surface that we implement: libraries ask for what a version has. */
	SHIM_DRIVER_VERSION = 13000,
	SHIM_DEVICES_MAX = 16,
	SHIM_ATTRIBUTES_MAX = 256,
	SHIM_CONTEXT_STACK = 32,
};

/* ---- connections.c, and see channels.h */
CUresult shim_ready(void);
void shim_mark_initialized(void);

/* ---- state.c */
CUresult shim_channel_error(int error);
/* Whether this is the first time, and the program's user wants to hear of it. */
bool shim_is_news(atomic_flag *said);
/* CUDA_ERROR_NOT_SUPPORTED; says the name on stderr the first time. */
int shim_unsupported(const char *name, atomic_flag *said);
/* CUDA_ERROR_NOT_SUPPORTED: the worker does not have this operation, or has another. Says so the first time. */
CUresult shim_refuse_operation(uint32_t op);
/* What a frame of this operation could not be made or sent for. */
CUresult shim_frame_error(uint32_t op, int error);
/* The same without a word to the user: for calls that programs try and can do without. */
int shim_refuse(const char *name);

/* ---- context.c */
uint64_t shim_current(void);
/* cuInit has been called; where `context` is not NULL it gets the current one, which must be alive and well. */
CUresult shim_enter(uint64_t *context);
/* Remembers errors of a channel after which the current context, if it is of that one, is of no more use. */
void shim_note(unsigned channel, CUresult result);
/* What a context is lost with, maybe by a copy in a graph that could not be made; or CUDA_SUCCESS. */
CUresult shim_lost(uint64_t context);
/* The current context, which must be alive and well. */
CUresult shim_enter_current(uint64_t *context);
/* Whether this process has made several contexts. */
bool shim_uses_contexts(void);
/* A context of a mapping's device, the current one before others; 0: there is none. */
struct shim_range;
uint64_t shim_context_on(const struct shim_range *mapping);
/* The current context's object, or NULL. */
struct shim_object *shim_current_object(void);

/* ---- device.c */
struct shim_device {
	uint64_t total_bytes;
	char name[256], pci_bus_id[32];
	CUuuid uuid;
	int attributes[SHIM_ATTRIBUTES_MAX];
	int attributes_count;
};
CUresult shim_device_count(uint32_t *count);
/* The snapshot of a device, fetched once; valid for ever. */
CUresult shim_device(CUdevice ordinal, const struct shim_device **device);
int shim_attribute(CUdevice ordinal, CUdevice_attribute attribute);

/* ---- ranges.c: the guest's view of device allocations, pinned host memory, and addresses reserved for mappings */
/* Of entry points with _ptsz: the default stream is the thread's own. */
#define SHIM_PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

enum shim_range_kind { SHIM_RANGE_DEVICE, SHIM_RANGE_HOST, SHIM_RANGE_RESERVED };
struct shim_range {
	uint64_t start, bytes, context, id;
	uint64_t module; /* not 0: a module's variable, gone with it */
	unsigned int flags;
	bool registered;     /* host memory that the program brought along */
	bool managed;        /* device memory that is mapped here too, see managed.h */
	bool host;           /* of these: the program calls it pinned memory that is mapped on the device */
	uint64_t physical;   /* not 0: a mapping, of this memory; of no context */
	bool accessible;     /* of a mapping */
	bool pooled;         /* allocated in the order of a stream */
	uint64_t pool;       /* that it is from, where that is not the device's own; 0: none */
	uint32_t opened;     /* another process's, opened so many times here */
	CUdevice device;     /* of a mapping */
	unsigned channel;    /* that has it: of the context, or of the memory, or of the thread that adds it */
};
CUresult shim_range_add(enum shim_range_kind kind, const struct shim_range *range);
bool shim_range_find(enum shim_range_kind kind, uint64_t address, struct shim_range *found);
/* Removes what was found, if it is still there: another channel may have one at the same address. */
bool shim_range_remove(enum shim_range_kind kind, struct shim_range *found);
/* Removes all ranges of a context, or of a module. */
void shim_range_forget(enum shim_range_kind kind, uint64_t owner);
/* Managed memory among the bytes: touching them may need a call, so not while a frame is made. */
bool shim_range_is_managed(const void *at, size_t bytes);
/* advice.c: of managed memory that is freed. */
void shim_advice_forget(const struct shim_range *range);
/* Who hears of managed memory: before the device uses what starts there, and when a context is no more. */
struct shim_managed_watcher {
	CUresult (*use)(uint64_t start);
	void (*forget)(uint64_t context);
};
void shim_range_watch(const struct shim_managed_watcher *watcher);
/* Whether there is any in those addresses. */
bool shim_range_any(enum shim_range_kind kind, uint64_t start, uint64_t bytes);
/* The last of a channel's that has any of these. */
bool shim_range_last(enum shim_range_kind kind, unsigned channel, uint64_t start, uint64_t bytes, struct shim_range *found);
/* Whether another channel than the context's has any memory or reserved addresses there: 0, or the end of the last. */
uint64_t shim_range_elsewhere(uint64_t context, uint64_t start, uint64_t bytes);
/* A mapping that was found; false: it is not there any more. */
bool shim_range_open(const struct shim_range *found, bool accessible);
/* Another process's memory is opened once more, or closed once: how often it is open then; 0: it was not there, or is no more. */
uint32_t shim_range_count(const struct shim_range *found, int change);
/* Whether it is memory of a device, or would be if something were mapped there. */
bool shim_is_device(uint64_t address);
/* CUDA_ERROR_INVALID_VALUE unless rows x (count * factor) bytes, pitch apart, lie in one allocation, or in open neighbours. */
CUresult shim_check_range(uint64_t address, uint64_t count, uint64_t factor, uint64_t rows, uint64_t pitch);

/* ---- callback.c */
/* Whether any is to run, or runs. */
bool shim_host_functions(void);
/* Gates of graphs are served, too, of that channel. */
bool shim_serve_gates(unsigned channel);
/* A thread of the library's own, that nobody waits for. */
bool shim_start_thread(void *(*run)(void *), void *argument);

/* ---- ipc.c */
/* Whether other processes may get this memory. */
bool shim_is_exportable(const struct shim_range *range);
/*
 * After a call that other processes may have been told of: they must find that it has been made. Waits for what was posted
 * in the context, if this process shares anything; 0: in the current one.
 */
CUresult shim_ipc_settle(uint64_t context);
/* Around a copy that blocks: other processes see it when it returns, which from memory of the host is when it is done. */
CUresult shim_ipc_settled(CUresult r, uint64_t from, CUstream stream);
void shim_ipc_begin(void);
/* One opening less of another process's memory, which is of a pool or not. */
CUresult shim_ipc_close(CUdeviceptr address, bool pooled);

/* ---- memory.c */
/* Asks the worker for memory once: fills its start, and its bytes where the caller does not know them. */
typedef CUresult shim_allocate_fn(void *what, struct shim_range *got);
/* The same, for the range's context, until its addresses are of no other device, and remembers it. */
CUresult shim_allocate(struct shim_range *range, shim_allocate_fn *allocate, void *what);
/* Takes an allocation off what is known, by its start; a module's variables cannot be freed. */
bool shim_take_allocation(uint64_t address, struct shim_range *range);

/* ---- stream.c, event.c, module.c, function.c, library.c: handles to wire; context follows a stream's own */
CUresult shim_stream(CUstream stream, uint64_t *context, uint64_t *id);
CUresult shim_event(CUevent event, uint64_t *context, uint64_t *id);
CUresult shim_module(CUmodule module, uint64_t *context, uint64_t *id);
CUresult shim_function(CUfunction function, uint64_t *context, uint64_t *id);
/* As shim_function, and the object; a CUkernel is resolved for the current context. */
CUresult shim_function_object(CUfunction function, struct shim_object **object);
/* limits.c: before others have the function. */
void shim_set_launch_limits(struct shim_object *function, CUdevice device);
CUresult shim_kernel_function(CUkernel kernel, CUfunction *function);
bool shim_is_kernel(const void *handle);
CUresult shim_upload(const void *image, size_t length, uint32_t *upload);
size_t shim_image_length(const void *image, const void **start);
/* A whole file with a NUL behind it, which the length does not count; `length` may be NULL. The caller frees. */
CUresult shim_file(const char *name, void **image, size_t *length);

#endif
