/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory, by the rule of devices without concurrent access (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0): the
 * program does not touch it while kernels run. The same addresses are mapped here and allocated in the worker. Before a
 * launch, blocks that the program has written travel to the device, and the pages here are dropped; the first touch
 * afterwards waits for the device and fetches the block.
 */
#include "managed.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captures.h"
#include "copies.h"
#include "faults.h"
#include "space.h"

enum { PAGE = FAULTS_PAGE, BLOCK = 1 << 17, AHEAD = 8, ATTEMPTS = 16 };

/* Of a block: where its bytes are valid. On both sides, it is write-protected here. */
enum state { ON_DEVICE, ON_BOTH, HERE };

struct range {
	uint64_t start, bytes;         /* whole pages */
	uint64_t device;               /* the worker's allocation, at most a page below */
	uint64_t context, stream;
	size_t blocks, present;        /* present: not ON_DEVICE */
	size_t expected, ahead;        /* where touches go on if they are in order, and how many blocks then come at once */
	bool unused;                   /* no kernel has run since it was made: nothing is to be fetched */
	struct range *next;            /* of those with blocks present */
	uint8_t state[];
};

/* The stream on which a context's blocks travel: one that waits for no other. */
struct transfer {
	uint64_t context, stream;
	struct transfer *next;
};

static struct {
	pthread_mutex_t lock;
	bool serving;
	struct range **at;             /* sorted by address */
	size_t count, room;
	struct range *present;
	struct transfer *transfers;
	uint64_t launches, waited;     /* waited: for so many of them */
	uint8_t *staging;
	atomic_flag told;
} managed = { .lock = PTHREAD_MUTEX_INITIALIZER, .told = ATOMIC_FLAG_INIT };

static _Atomic size_t live;            /* managed.count, for a look without the lock */

/* ---- ranges; all of this under the lock */

/* The number of ranges that start at or below the address. */
static size_t below(uint64_t address)
{
	size_t low = 0, high = managed.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (managed.at[middle]->start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct range *find(uint64_t address)
{
	size_t at = below(address);

	return at && address - managed.at[at - 1]->start < managed.at[at - 1]->bytes ? managed.at[at - 1] : NULL;
}

static bool insert(struct range *r)
{
	size_t room = managed.room ? managed.room * 2 : 64, at = below(r->start);
	struct range **grown;

	if (managed.count == managed.room) {
		grown = realloc(managed.at, room * sizeof(*grown));
		if (!grown)
			return false;
		managed.at = grown;
		managed.room = room;
	}
	memmove(&managed.at[at + 1], &managed.at[at], (managed.count - at) * sizeof(*managed.at));
	managed.at[at] = r;
	atomic_store(&live, ++managed.count);
	return true;
}

static void unlink_present(struct range *r)
{
	for (struct range **p = &managed.present; *p; p = &(*p)->next) {
		if (*p == r) {
			*p = r->next;
			return;
		}
	}
}

/* Its pages go too; a thread that waits for one of them finds that nothing is mapped there. */
static void erase(size_t at)
{
	struct range *r = managed.at[at];

	memmove(&managed.at[at], &managed.at[at + 1], (--managed.count - at) * sizeof(*managed.at));
	atomic_store(&live, managed.count);
	unlink_present(r);
	faults_unmap(r->start, r->bytes);
	free(r);
}

static uint64_t block_bytes(const struct range *r, size_t first, size_t n)
{
	uint64_t end = (first + n) * (uint64_t)BLOCK;

	return (end < r->bytes ? end : r->bytes) - first * (uint64_t)BLOCK;
}

/* ---- to the device */

/* Blocks that were written here, from `first` on; what is written while they travel faults, and waits. */
static CUresult send_run(const struct range *r, size_t first, size_t n)
{
	uint64_t start = r->start + first * (uint64_t)BLOCK;
	struct shim_rect rect = { .device = start, .host = (uint8_t *)start, .width = block_bytes(r, first, n), .rows = 1,
				  .present = true };

	if (!faults_protect(start, rect.width, true))
		return CUDA_ERROR_OPERATING_SYSTEM;
	return shim_copy_to_device(r->context, r->stream, &rect);
}

/* Awaited, for kernels of any stream may use it next. */
static CUresult send_written(const struct range *r)
{
	struct vg_cuStreamSynchronize_request wait = { .context = r->context, .hStream = r->stream };
	CUresult result = CUDA_SUCCESS;
	bool any = false;

	for (size_t i = 0, n; result == CUDA_SUCCESS && i < r->blocks; i += n) {
		for (n = 0; i + n < r->blocks && r->state[i + n] == HERE;)
			n++;
		if (n) {
			result = send_run(r, i, n);
			any = true;
		} else {
			n = 1;
		}
	}
	return result == CUDA_SUCCESS && any ? vg_send_cuStreamSynchronize(&wait) : result;
}

static CUresult hand_over(struct range *r)
{
	CUresult result = send_written(r);

	r->unused = false;
	if (result != CUDA_SUCCESS)
		return result;
	/* a thread whose write has just faulted is woken, faults again and fetches */
	memset(r->state, ON_DEVICE, r->blocks);
	r->present = 0;
	return faults_drop(r->start, r->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult shim_managed_launch(void)
{
	CUresult r = CUDA_SUCCESS;

	if (!atomic_load_explicit(&live, memory_order_relaxed))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&managed.lock);
	managed.launches++;
	while (managed.present && r == CUDA_SUCCESS) {
		r = hand_over(managed.present);
		if (r == CUDA_SUCCESS)
			managed.present = managed.present->next;
	}
	for (size_t i = 0; i < managed.count; i++)
		managed.at[i]->unused = false;
	pthread_mutex_unlock(&managed.lock);
	return r;
}

static CUresult use(uint64_t start)
{
	CUresult result = CUDA_SUCCESS;
	struct range *r;

	pthread_mutex_lock(&managed.lock);
	managed.launches++;
	r = find(start);
	if (r && r->present) {
		result = hand_over(r);
		if (result == CUDA_SUCCESS)
			unlink_present(r);
	} else if (r) {
		r->unused = false;
	}
	pthread_mutex_unlock(&managed.lock);
	return result;
}

/* ---- to here */

/* What runs may still write. Not while a host function is due: it may be what asks, and the device waits for it. */
static CUresult wait_for_device(const struct range *r)
{
	struct vg_cuCtxSynchronize_request in = { .context = r->context };
	uint64_t launches = managed.launches;
	CUresult result;

	if (managed.waited == launches || shim_host_functions())
		return CUDA_SUCCESS;
	result = vg_send_cuCtxSynchronize(&in);
	if (result == CUDA_SUCCESS)
		managed.waited = launches;
	return result;
}

static CUresult fetch(const struct range *r, size_t first, size_t n)
{
	struct shim_rect rect = { .device = r->start + first * (uint64_t)BLOCK, .host = managed.staging,
				  .width = block_bytes(r, first, n), .rows = 1 };
	CUresult result;

	if (r->unused) {
		memset(managed.staging, 0, rect.width);
		return CUDA_SUCCESS;
	}
	result = wait_for_device(r);
	return result == CUDA_SUCCESS ? shim_copy_to_host(r->context, r->stream, &rect) : result;
}

/* The bytes are lost. Wrong ones would be found far from the cause: the program ends where it asks for them. */
static void lose(const struct range *r)
{
	if (shim_is_news(&managed.told))
		dprintf(STDERR_FILENO, "vgpumgr: managed memory at 0x%llx is lost with the session that had it\n",
			(unsigned long long)r->start);
	faults_forbid(r->start, r->bytes);
}

/* How many blocks come at once: more and more of them for who touches them in order. */
static size_t look_ahead(struct range *r, size_t first)
{
	size_t n = 1;

	r->ahead = first && first == r->expected ? (2 * r->ahead < AHEAD ? 2 * r->ahead : AHEAD) : 1;
	while (n < r->ahead && first + n < r->blocks && r->state[first + n] == ON_DEVICE)
		n++;
	r->expected = first + n;
	return n;
}

static void bring(struct range *r, size_t first, bool writes)
{
	size_t n = look_ahead(r, first);
	uint64_t start = r->start + first * (uint64_t)BLOCK, bytes = block_bytes(r, first, n);

	if (fetch(r, first, n) != CUDA_SUCCESS || !faults_fill(start, managed.staging, bytes, !writes)) {
		lose(r);
		return;
	}
	memset(&r->state[first], writes ? HERE : ON_BOTH, n);
	if (!r->present) {
		r->next = managed.present;
		managed.present = r;
	}
	r->present += n;
}

static void resolve(const struct fault *fault)
{
	struct range *r;
	size_t block;

	pthread_mutex_lock(&managed.lock);
	r = find(fault->page);
	block = r ? (fault->page - r->start) / BLOCK : 0;
	if (r && r->state[block] == ON_DEVICE && !fault->protected) {
		bring(r, block, fault->writes);
	} else if (r && r->state[block] != ON_DEVICE && fault->protected) {
		r->state[block] = HERE;
		faults_protect(r->start + block * (uint64_t)BLOCK, block_bytes(r, block, 1), false);
	} else {
		faults_wake(fault->page, PAGE); /* gone, or come, meanwhile */
	}
	pthread_mutex_unlock(&managed.lock);
}

static void *serve(void *unused)
{
	struct fault fault;
	sigset_t all;

	(void)unused;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (faults_next(&fault))
		resolve(&fault);
	return NULL;
}

static void forget(uint64_t context)
{
	pthread_mutex_lock(&managed.lock);
	for (size_t i = managed.count; i--;)
		if (managed.at[i]->context == context)
			erase(i);
	for (struct transfer **p = &managed.transfers, *t; (t = *p);) {
		if (t->context != context) {
			p = &t->next;
			continue;
		}
		*p = t->next;
		free(t);
	}
	pthread_mutex_unlock(&managed.lock);
}

/* Under the lock. */
static bool start_serving(void)
{
	static const struct shim_managed_watcher watcher = { use, forget };

	if (managed.serving || !faults_possible())
		return managed.serving;
	if (!managed.staging && posix_memalign((void **)&managed.staging, PAGE, AHEAD * BLOCK)) {
		managed.staging = NULL;
		return false;
	}
	shim_range_watch(&watcher);
	managed.serving = shim_start_thread(serve, NULL);
	return managed.serving;
}

/* ---- allocation */

static CUresult free_device(uint64_t context, uint64_t address)
{
	struct vg_memory_free_request in = { .context = context, .address = address };

	return vg_send_memory_free(&in);
}

/* Addresses of the device that something has here already are kept until there are others. */
static CUresult place(struct range *r, unsigned int attempts)
{
	struct vg_memory_allocate_request in = { .context = r->context, .bytes = r->bytes + PAGE };
	struct vg_memory_allocate_reply out;
	CUresult result = vg_send_memory_allocate(&in, &out);

	if (result != CUDA_SUCCESS)
		return result;
	r->device = out.address;
	r->start = (out.address + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	shim_space_give(r->start, r->bytes);
	if (!shim_range_elsewhere(in.context, out.address, in.bytes) && faults_map(r->start, r->bytes))
		return CUDA_SUCCESS;
	result = attempts > 1 ? place(r, attempts - 1) : CUDA_ERROR_OUT_OF_MEMORY;
	free_device(in.context, out.address);
	return result;
}

static CUresult find_stream(uint64_t context, uint64_t *stream)
{
	struct transfer *t = managed.transfers;
	CUstream made;
	CUresult r;

	while (t && t->context != context)
		t = t->next;
	if (!t) {
		r = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
		if (r != CUDA_SUCCESS)
			return r;
		t = malloc(sizeof(*t));
		if (!t) {
			cuStreamDestroy(made);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		*t = (struct transfer){ context, (uint64_t)made, managed.transfers };
		managed.transfers = t;
	}
	*stream = t->stream;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult make(uint64_t context, size_t bytes, struct range **out)
{
	uint64_t whole = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	size_t blocks = (whole + BLOCK - 1) / BLOCK;
	struct range *r;
	CUresult result;

	if (whole < bytes || whole + PAGE < whole)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = calloc(1, sizeof(*r) + blocks);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct range){ .bytes = whole, .context = context, .blocks = blocks, .unused = true };
	result = find_stream(context, &r->stream);
	if (result == CUDA_SUCCESS)
		result = place(r, ATTEMPTS);
	if (result == CUDA_SUCCESS && !insert(r)) {
		faults_unmap(r->start, r->bytes);
		free_device(context, r->device);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS)
		free(r);
	else
		*out = r;
	return result;
}

CUresult shim_managed_make(struct shim_range *range)
{
	struct range *made;
	CUresult r;

	range->managed = true;
	pthread_mutex_lock(&managed.lock);
	r = start_serving() ? make(range->context, range->bytes, &made) : CUDA_ERROR_NOT_SUPPORTED;
	range->start = r == CUDA_SUCCESS ? made->start : 0;
	pthread_mutex_unlock(&managed.lock);
	if (r != CUDA_SUCCESS)
		return r;
	r = shim_range_add(SHIM_RANGE_DEVICE, range);
	if (r != CUDA_SUCCESS)
		shim_managed_free(range);
	return r;
}

CUresult shim_managed_free(const struct shim_range *range)
{
	uint64_t device = 0;
	size_t at;

	pthread_mutex_lock(&managed.lock);
	at = below(range->start);
	if (at && managed.at[at - 1]->start == range->start) {
		device = managed.at[at - 1]->device;
		erase(at - 1);
	}
	pthread_mutex_unlock(&managed.lock);
	return device ? free_device(range->context, device) : CUDA_ERROR_INVALID_VALUE;
}

SHIM_API CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct shim_range range = { .bytes = bytesize };
	static atomic_flag told = ATOMIC_FLAG_INIT;
	CUresult r = shim_enter(&range.context);

	if (r == CUDA_SUCCESS)
		r = shim_capture_safe();
	if (r == CUDA_SUCCESS)
		r = cuda_check_alloc_managed(dptr, bytesize, flags);
	if (r != CUDA_SUCCESS)
		return r;
	*dptr = 0;
	r = shim_managed_make(&range);
	if (r == CUDA_ERROR_NOT_SUPPORTED) {
		shim_refuse("cuMemAllocManaged");
		if (shim_is_news(&told))
			dprintf(STDERR_FILENO, "vgpumgr: no managed memory: the kernel refuses userfaultfd to this process\n");
	}
	if (r == CUDA_SUCCESS)
		*dptr = range.start;
	return r;
}
