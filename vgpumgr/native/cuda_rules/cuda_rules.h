/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CUDA's documentation lets any driver decide from the arguments of a call alone. The guest's libcuda and the
 * simulated driver both decide by these functions, so a program is refused alike by both. They keep no state, and they
 * know neither handles nor memory: those each library checks by itself.
 *
 * Functions that return a CUresult answer CUDA_SUCCESS or the code that the call has to return.
 */
#ifndef VGPUMGR_CUDA_RULES_H
#define VGPUMGR_CUDA_RULES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- errors.c */

/* cuGetErrorName and cuGetErrorString. */
CUresult cuda_error_name(CUresult error, const char **name);
CUresult cuda_error_string(CUresult error, const char **text);

/* ---- advice.c */

/* Of one process: pieces of managed memory, sorted by address. The caller has the lock. */
struct cuda_advice {
	struct cuda_pages *at;
	size_t count, room;
};

/* Some of an allocation's memory; `owner` is a number of that allocation that no other has. */
struct cuda_managed {
	uint64_t owner, base, size;
	uint64_t start, bytes;
};

CUmemLocation cuda_location_of(CUdevice device);
/* Both also write a location in the form in which it is kept. */
CUresult cuda_check_advice(CUmem_advise advice, CUmemLocation *where, int devices);
CUresult cuda_check_prefetch(CUmemLocation *where, int devices);
CUresult cuda_advise(struct cuda_advice *a, const struct cuda_managed *memory, CUmem_advise advice, CUmemLocation where);
CUresult cuda_note_prefetch(struct cuda_advice *a, const struct cuda_managed *memory, CUmemLocation where);
void cuda_forget_advice(struct cuda_advice *a, uint64_t owner);
/* cuMemRangeGetAttribute, and the same of several with a function that is it. */
CUresult cuda_range_attribute(const struct cuda_advice *a, const struct cuda_managed *memory, CUmem_range_attribute attribute,
			      void *data, size_t size);
typedef CUresult cuda_range_question(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr at, size_t bytes);
CUresult cuda_range_attributes(void **data, const size_t *sizes, const CUmem_range_attribute *attributes, size_t count,
			       CUdeviceptr at, size_t bytes, cuda_range_question *ask);

/* cuMemPrefetchBatchAsync's arguments: `first[k]` is the first range that goes to the k-th place; without places none goes anywhere. */
struct cuda_prefetches {
	const CUdeviceptr *at;
	const size_t *sizes;
	size_t count;
	const CUmemLocation *places;
	const size_t *first;
	size_t kinds;
};

/* With the driver's prefetch of one range; `to` is NULL where it goes nowhere. Which streams there are the driver decides. */
CUresult cuda_prefetch_each(const struct cuda_prefetches *p, unsigned long long flags, CUstream stream,
			    CUresult (*one)(CUdeviceptr at, size_t bytes, const CUmemLocation *to, CUstream stream));

/* ---- copy_batch.c */

/* cuMemcpyBatchAsync's arguments: `first[k]` is the first copy that has the k-th attributes. */
struct cuda_copies {
	const CUdeviceptr *to, *from;
	const size_t *sizes;
	size_t count;
	const CUmemcpyAttributes *attributes;
	const size_t *first;
	size_t kinds;
};

/* The driver's own calls: a copy, whether a stream is captured, the wait for a stream. */
struct cuda_copy_calls {
	CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
	CUresult (*is_capturing)(CUstream stream, CUstreamCaptureStatus *status);
	CUresult (*wait)(CUstream stream);
	bool (*reads_later)(uint64_t from); /* a source there may be read after the copy's call; NULL: any may */
	CUresult (*copy_3d)(const CUDA_MEMCPY3D *copy, CUstream stream);
	CUresult (*describe)(CUDA_ARRAY3D_DESCRIPTOR *made, CUarray array);
};

/* Of `count` things the first ones of each of `kinds` kinds: from 0 on, and rising. */
CUresult cuda_check_parts(const size_t *first, size_t kinds, size_t count);

/*
 * Nothing is copied where the arguments are wrong; `failed`, which may be NULL, gets the index of a copy that is refused,
 * else SIZE_MAX. Waits where a source may be gone when the call has returned, and is still to be read.
 */
CUresult cuda_copy_each(const struct cuda_copies *copies, const struct cuda_copy_calls *calls, CUstream stream, size_t *failed);
/* The same of copies in three dimensions. */
CUresult cuda_copy_each_3d(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, unsigned long long flags,
			   const struct cuda_copy_calls *calls, CUstream stream, size_t *failed);

/* ---- stream_attributes.c */

struct cuda_stream_attributes {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy policy;
	CUlaunchMemSyncDomainMap domains;
	CUlaunchMemSyncDomain domain;
	int priority;
};

/* What a stream has that was made with this priority. */
void cuda_stream_attributes_init(struct cuda_stream_attributes *attributes, int priority);
/* A priority is taken as it is: the range is the context's. */
CUresult cuda_stream_attribute_set(struct cuda_stream_attributes *attributes, CUstreamAttrID id, const CUstreamAttrValue *value);
CUresult cuda_stream_attribute_get(const struct cuda_stream_attributes *attributes, CUstreamAttrID id, CUstreamAttrValue *value);
/* All there are, for copies. */
#define CUDA_STREAM_ATTRIBUTES                                                                                           \
	{                                                                                                                \
		CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,                    \
			CU_LAUNCH_ATTRIBUTE_PRIORITY, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,                           \
			CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN                                                              \
	}

/* ---- stream_memory.c */

enum { CUDA_MEMORY_OPERATIONS = 255 }; /* of one batch, at most */

/* One of them, whatever its form in a batch. */
struct cuda_memory_operation {
	CUstreamBatchMemOpType kind;
	unsigned int flags;           /* of a wait its condition, of a barrier its reach */
	CUstreamAtomicReductionOpType reduction;
	size_t bytes;                 /* 4 or 8; 0: it has no address */
	CUdeviceptr address;
	uint64_t value;
};

CUresult cuda_check_memory_operations(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags);
/* `old`: by the interface before CUDA 11.7. That the address is memory is the caller's to check. */
CUresult cuda_read_memory_operation(const CUstreamBatchMemOpParams *p, bool old, struct cuda_memory_operation *out);
void cuda_write_memory_operation(const struct cuda_memory_operation *from, CUstreamBatchMemOpParams *p);
bool cuda_is_wait(const struct cuda_memory_operation *operation);

/* ---- tensor_map.c */

enum { CUDA_TENSOR_TILED, CUDA_TENSOR_IM2COL, CUDA_TENSOR_IM2COL_WIDE, CUDA_TENSOR_RANK = 5 };

/* What one of cuTensorMapEncode* is given. */
struct cuda_tensor_map {
	uint32_t how, rank;
	CUtensorMapDataType type;
	uint64_t address, sizes[CUDA_TENSOR_RANK], strides[CUDA_TENSOR_RANK];
	uint32_t box[CUDA_TENSOR_RANK], steps[CUDA_TENSOR_RANK];
	int lower[CUDA_TENSOR_RANK], upper[CUDA_TENSOR_RANK];
	uint32_t channels, pixels;
	CUtensorMapInterleave interleave;
	CUtensorMapSwizzle swizzle;
	CUtensorMapIm2ColWideMode mode;
	CUtensorMapL2promotion promotion;
	CUtensorMapFloatOOBfill fill;
};

/* Before the arrays are read, as long as the rank says. */
CUresult cuda_check_tensor_rank(uint32_t how, uint32_t rank);
/* How many corners of a box there are; of no more than the rank. */
uint32_t cuda_tensor_corners(const struct cuda_tensor_map *map);
CUresult cuda_check_tensor_map(const struct cuda_tensor_map *map);

/* ---- entry.c: how a program finds functions */

/* One version of one name; version 11040 is CUDA 11.4. */
struct cuda_proc {
	const char *name;
	int version;
	bool per_thread; /* stream 0 is the calling thread's own default stream */
	void *address;
};

/* cuGetProcAddress_v2 over a table: the newest variant that is not newer than `version`. `status` may be NULL. */
CUresult cuda_find_proc(const struct cuda_proc *table, size_t count, const char *symbol, int version, cuuint64_t flags,
			void **function, CUdriverProcAddressQueryResult *status);
/*
 * cuGetExportTable of a driver without private tables. CUDA_ERROR_NOT_SUPPORTED: the table by which a vendor's runtime
 * announces itself. That code becomes the result of each of its calls, and says more than "not found" does.
 */
CUresult cuda_export_table(const void **table, const CUuuid *id);

/* ---- arguments.c: flags, options, addresses */

CUresult cuda_check_context_flags(unsigned int flags);
/* Shares of multiprocessors and graphics interoperability are not supported. */
CUresult cuda_check_exec_affinity(const CUexecAffinityParam *params, int count);
CUresult cuda_check_context_params(const CUctxCreateParams *params);
CUresult cuda_check_exec_affinity_type(CUexecAffinityType type);
/* The other of two devices or contexts; that it exists is the caller's to check. */
CUresult cuda_check_peer_attribute(CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer);
/* What is asked of atomics over a link. */
CUresult cuda_check_atomic_operations(const unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count);
/* How the thread of host functions waits, which is left to it. */
CUresult cuda_check_host_task(unsigned int mode);
CUresult cuda_check_peer_access(CUcontext peer, unsigned int flags);
CUresult cuda_check_stream_flags(unsigned int flags);
CUresult cuda_check_event_flags(unsigned int flags);
CUresult cuda_check_event_record_flags(unsigned int flags);
CUresult cuda_check_host_alloc(void *const *out, size_t bytes, unsigned int flags);
CUresult cuda_check_host_register(const void *memory, size_t bytes, unsigned int flags);
CUresult cuda_check_alloc_managed(const CUdeviceptr *out, size_t bytes, unsigned int flags);
CUresult cuda_check_alloc_pitch(const CUdeviceptr *out, const size_t *pitch, size_t width, size_t height,
				unsigned int element);
CUresult cuda_check_jit_options(unsigned int count, const CUjit_option *options, void *const *values);
CUresult cuda_check_pointer_attributes(unsigned int count, const CUpointer_attribute *attributes, void *const *data);
/* What cuPointerGetAttributes writes for an address that it does not know: zeros, and no device. */
void cuda_put_unknown_pointer(CUpointer_attribute attribute, void *data);
/* Domain, bus, device and function of [domain:]bus:device[.function], all hexadecimal. */
CUresult cuda_parse_pci_address(const char *text, unsigned int part[4]);

/* ---- pool.c */

CUresult cuda_check_pool_properties(const CUmemPoolProps *properties);
/* Where and of which type memory is whose pool is asked for. */
CUresult cuda_check_pool_location(const CUmemLocation *location, CUmemAllocationType type);
/* How much an attribute's value takes; 0: there is no such attribute. */
size_t cuda_pool_attribute_size(CUmemPool_attribute attribute);
/*
 * Who gets at the memory of a pool or of a mapping: it is of device `own`, one of `devices`; those of the set `able`, a bit each, may
 * be let at it, and those of `access` are.
 */
struct cuda_reach {
	CUdevice own;
	int devices;
	uint32_t able, access;
};
CUresult cuda_set_pool_access(const CUmemAccessDesc *list, size_t count, struct cuda_reach *reach);
CUresult cuda_read_pool_access(const CUmemLocation *location, const struct cuda_reach *reach, CUmemAccess_flags *flags);

/* ---- virtual.c */

CUresult cuda_check_physical(const CUmemAllocationProp *properties);
CUresult cuda_check_granularity(const size_t *granularity, const CUmemAllocationProp *properties,
				CUmemAllocationGranularity_flags option);
CUresult cuda_check_reserve(const CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
			    unsigned long long flags);
/* Whether whole units lie there, as are mapped and unmapped. */
CUresult cuda_check_mappable(CUdeviceptr address, size_t bytes, size_t granularity);
CUresult cuda_check_map(CUdeviceptr address, size_t bytes, size_t offset, size_t granularity, unsigned long long flags);
/* A device that the list does not name keeps what it has. */
CUresult cuda_set_mapped_access(const CUmemAccessDesc *list, size_t count, struct cuda_reach *reach);
CUresult cuda_check_access_place(const unsigned long long *flags, const CUmemLocation *location, int devices);

/* ---- descriptor.c: what a program hands to another process as a descriptor */

/* -1 and errno: there is none. */
int cuda_descriptor_make(const char *name, const void *what, size_t bytes);
/* What was put into one; false: it is no such descriptor. */
bool cuda_descriptor_read(int file, void *what, size_t bytes);
CUresult cuda_check_export(const void *out, CUmemAllocationHandleType type, unsigned long long flags);
/* The handle is a descriptor's number. */
CUresult cuda_check_import(const void *out, const void *handle, CUmemAllocationHandleType type, unsigned long long flags);

/* ---- capture.c */

/*
 * Whether a thread in mode `thread` may not make a potentially unsafe call while a capture that was begun in mode `capture`,
 * by itself or by another thread, goes on: cuThreadExchangeStreamCaptureMode.
 */
bool cuda_capture_forbids(CUstreamCaptureMode thread, CUstreamCaptureMode capture, bool by_itself);
CUresult cuda_check_capture_mode(CUstreamCaptureMode mode);
/* Edges with ports or of a type of their own are of launches that we do not have. */
CUresult cuda_check_edges(const CUgraphEdgeData *data, size_t count);

/* ---- launch.c */

struct cuda_launch_limits {
	unsigned int grid[3], block[3];
	uint64_t threads; /* of a block */
	uint64_t shared;  /* dynamic shared memory of a block, in bytes */
};

/* What attributes ask for. Those that only tune, or that say what happens anyway, are accepted; the others are refused. */
struct cuda_launch_options {
	bool cooperative;
	unsigned int cluster[3]; /* blocks; zeroes: as the kernel requires */
};
CUresult cuda_read_launch_attributes(const CUlaunchConfig *config, struct cuda_launch_options *out);

struct cuda_cluster_limits {
	unsigned int required[3]; /* by the kernel; zeroes: it requires none */
	bool must_be_set;
	unsigned int most; /* blocks; 0: the device has no clusters */
};
/* `options` gets the clusters that the launch has; zeroes: none. */
CUresult cuda_check_clusters(const CUlaunchConfig *config, const struct cuda_cluster_limits *limits,
			     struct cuda_launch_options *options);
CUresult cuda_check_launch(const CUlaunchConfig *config, const struct cuda_launch_limits *limits);
/*
 * The documented ways to pass parameters. `buffer` gets the program's block of at least `bytes` bytes, or NULL: then
 * `params` points to each parameter.
 */
CUresult cuda_read_parameters(void **params, void **extra, size_t bytes, const void **buffer);

/* ---- kernel_attributes.c */

/* Whether kernels in graphs have such an attribute and, unless `value` is NULL, whether it may be that. */
CUresult cuda_check_kernel_attribute(CUkernelNodeAttrID id, const CUkernelNodeAttrValue *value);

/* ---- copy.c: rows of bytes */

/* One end of a copy: row y of slice z starts at base + z * slice + y * pitch, or in an array at (x bytes, y, z). */
struct cuda_side {
	CUmemorytype type; /* HOST, DEVICE, UNIFIED or ARRAY */
	uint64_t base;
	size_t pitch, slice;
	CUarray array;
	size_t x, y, z;
};

struct cuda_copy {
	struct cuda_side to, from;
	size_t width, rows, slices; /* one of them 0: there is nothing to copy, and the sides are not filled */
};

CUresult cuda_read_copy_2d(const CUDA_MEMCPY2D *p, struct cuda_copy *copy);
CUresult cuda_read_copy_3d(const CUDA_MEMCPY3D *p, struct cuda_copy *copy);
/* Between contexts: the copy that it is where an address says whose it is. `look` fails for a context that is none. */
CUresult cuda_read_copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUresult (*look)(CUdevice *device, CUcontext context), CUDA_MEMCPY3D *copy);
bool cuda_copy_is_empty(const struct cuda_copy *copy);
/* Bytes from the first to the last one that a copy touches on a side. */
CUresult cuda_copy_extent(const struct cuda_copy *copy, const struct cuda_side *side, size_t *bytes);
/* The same of `rows` rows of `count` elements, `pitch` apart; rows must not overlap. */
CUresult cuda_rows_extent(size_t count, size_t element, size_t rows, size_t pitch, size_t *bytes);

/* ---- array.c */

/* What an array is made of, and where it ends. An element is read and written as a whole. */
struct cuda_array {
	CUDA_ARRAY3D_DESCRIPTOR made;
	size_t element, row; /* bytes */
	size_t rows, slices; /* at least 1; slices: layers, too */
	unsigned int rank;   /* without layers */
};

/* Bytes of an element; 0: there are no such elements. */
size_t cuda_element_bytes(CUarray_format format, unsigned int channels);
CUresult cuda_read_array(const CUDA_ARRAY3D_DESCRIPTOR *made, struct cuda_array *array);
CUresult cuda_read_array_2d(const CUDA_ARRAY_DESCRIPTOR *made, struct cuda_array *array);
/* A level of `levels`; beyond the last one: CUDA_ERROR_INVALID_VALUE. */
CUresult cuda_read_level(const struct cuda_array *whole, unsigned int level, unsigned int levels, struct cuda_array *array);
/* Whether that many levels may be made of it. */
CUresult cuda_check_levels(const struct cuda_array *whole, unsigned int levels);
/* Whether the part that a copy touches lies inside, and consists of whole elements. */
CUresult cuda_check_region(const struct cuda_array *array, const struct cuda_side *side, const struct cuda_copy *copy);
/* Copies of a line between an array and what `flat` says. */
CUresult cuda_read_array_line(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUmemorytype flat, uint64_t base,
			      size_t bytes, struct cuda_copy *copy);

/* ---- texture.c */

/* `array` is that of the description, or of its first level; NULL where it is made of memory. */
CUresult cuda_check_texture(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
			    const CUDA_RESOURCE_VIEW_DESC *view, const struct cuda_array *array);
CUresult cuda_check_surface(const CUDA_RESOURCE_DESC *resource, const struct cuda_array *array);
CUresult cuda_read_linear_width(size_t *elements, CUarray_format format, unsigned int channels);
/* What memory a description is made of: bytes from its address on. */
CUresult cuda_texture_extent(const CUDA_RESOURCE_DESC *resource, uint64_t *address, size_t *bytes);

#endif
