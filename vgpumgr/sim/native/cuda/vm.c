/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory and the table of allocations.
 *
 * Each device has a range of the process's address space, reserved once and given storage as pages are touched, so a
 * device address is also the host address of its bytes, and no other mapping can take it. The range is twice the
 * memory, which leaves room for fragmentation. The storage is a file's that has no name, so that other processes may be lent
 * some of it. Pieces of 2 MiB are charged to the machine and belong to one context; small
 * allocations share such pieces. Freed pieces go back to the kernel but stay accessible: a kernel that still uses them
 * reads zeros and cannot crash the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "chunk.h"

/* Far from where the kernel and malloc put things; only a wish, another free address serves as well. */
const struct vm_watch *vm_watch;
static const uint64_t wished_base = UINT64_C(0x300000000000);
/* For mappings: the same in all processes where it is free, as a program that moves a range between sessions wants it. */
static const uint64_t wished_arena = UINT64_C(0x1f0000000000);
/* Each GPU and instance of the machine has another one: programs of several sessions compare addresses. */
enum { PLACES = 64, PLACES_PER_GPU = 8, PLACE_SHIFT = 39 };

/* Sorted by address. Readers are kernels, so a lock that they share. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct allocation *items;
static size_t n_items, size_items;
static struct {
	uint64_t base, bytes;
} arena;

static void unlock_scope(int *unused)
{
	(void)unused;
	pthread_rwlock_unlock(&lock);
}
#define READING() CLEANUP(unlock_scope) int reading_ = pthread_rwlock_rdlock(&lock); (void)reading_
#define WRITING() CLEANUP(unlock_scope) int writing_ = pthread_rwlock_wrlock(&lock); (void)writing_

/* Index of the first allocation that starts after addr. */
static size_t upper(uint64_t addr)
{
	size_t low = 0, high = n_items;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (items[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct allocation *find(uint64_t addr)
{
	size_t i = upper(addr);

	return i && addr - items[i - 1].addr < items[i - 1].size ? &items[i - 1] : NULL;
}

static int insert(const struct allocation *a)
{
	size_t i = upper(a->addr);

	if (n_items == size_items) {
		size_t size = size_items ? size_items * 2 : 256;
		struct allocation *grown = realloc(items, size * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		items = grown;
		size_items = size;
	}
	memmove(&items[i + 1], &items[i], (n_items - i) * sizeof(*items));
	items[i] = *a;
	n_items++;
	return 0;
}

static void erase(struct allocation *a)
{
	size_t i = (size_t)(a - items);

	memmove(a, a + 1, (--n_items - i) * sizeof(*items));
}

/* What was mapped there is gone, and a kernel that still uses it reads zeros. */
static void cover(uint64_t addr, uint64_t bytes)
{
	mmap((void *)addr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

CUresult vm_reserve(struct device *dev)
{
	size_t n = (size_t)(dev->total_bytes / GRANULE * 2);
	uint32_t place = dev->gpu * PLACES_PER_GPU + (uint32_t)(dev->gi_id + 1);
	uint64_t wish = wished_base + ((uint64_t)(place % PLACES) << PLACE_SHIFT);
	void *p;

	if (dev->va_base)
		return CUDA_SUCCESS;
	for (int i = 0; i < dev->ordinal; i++)
		wish += (uint64_t)drv.devices[i].va_used.n * GRANULE + GRANULE;
	dev->file = memfd_create("vgpumgr-sim-memory", MFD_CLOEXEC);
	if (dev->file < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	p = ftruncate(dev->file, (off_t)((n + 1) * (size_t)GRANULE)) ? MAP_FAILED :
		mmap((void *)wish, (n + 1) * (size_t)GRANULE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, dev->file, 0);
	if (p == MAP_FAILED || bits_init(&dev->va_used, n)) {
		if (p != MAP_FAILED)
			munmap(p, (n + 1) * (size_t)GRANULE);
		close(dev->file);
		return p == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_OUT_OF_MEMORY;
	}
	dev->file_base = (uint64_t)p;
	dev->va_base = ((uint64_t)p + GRANULE - 1) / GRANULE * GRANULE;
	if (vm_watch)
		vm_watch->reserve(dev);
	return CUDA_SUCCESS;
}

/* As much as programs ask for that reserve a multiple of all devices' memory; less where the process may not have it. */
uint64_t vm_arena(uint64_t *bytes)
{
	WRITING();
	for (uint64_t wish = UINT64_C(1) << 44; !arena.base && wish >= UINT64_C(1) << 32; wish >>= 1) {
		void *p = mmap((void *)wished_arena, wish + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p != MAP_FAILED) {
			arena.bytes = wish;
			__atomic_store_n(&arena.base, ((uint64_t)p + GRANULE - 1) / GRANULE * GRANULE, __ATOMIC_RELEASE);
		}
	}
	*bytes = arena.bytes;
	return arena.base;
}

/* The memory is also mapped elsewhere: a second mapping of the same pages is what mremap makes of an old size of 0. */
CUresult vm_map(const struct allocation *a, const void *memory)
{
	struct allocation entered = *a;

	WRITING();
	entered.id = next_id();
	if (mremap((void *)memory, 0, a->size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)a->addr) != MAP_FAILED &&
	    !insert(&entered))
		return CUDA_SUCCESS;
	cover(a->addr, a->size);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void vm_unmap(uint64_t addr)
{
	struct allocation *a;

	WRITING();
	a = find(addr);
	if (!a || a->addr != addr || a->kind != ALLOCATION_MAPPED)
		return;
	cover(a->addr, a->size);
	erase(a);
}

bool vm_is_device_range(uint64_t addr)
{
	uint64_t base = __atomic_load_n(&arena.base, __ATOMIC_ACQUIRE);

	if (base && addr - base < arena.bytes)
		return true;
	for (int i = 0; i < drv.n_devices; i++) {
		const struct device *d = &drv.devices[i];

		if (d->va_base && addr - d->va_base < (uint64_t)d->va_used.n * GRANULE)
			return true;
	}
	return false;
}

/*
 * Where memory is checked, what is freed is not given out again at once: so a kernel that still uses it is found. A ring, the
 * oldest of which goes when there are too many or too much.
 */
enum { HELD = 256, HELD_BYTES = 32 << 20 };
static struct allocation held[HELD];
static size_t first_held, n_held;
static uint64_t held_bytes;

static void let_go(void)
{
	const struct allocation *a = &held[first_held++ % HELD];

	n_held--;
	held_bytes -= a->size;
	if (a->ctx)
		chunk_give_back(a);
}

static bool let_all_go(void)
{
	bool any = n_held;

	while (n_held)
		let_go();
	return any;
}

/* Memory of a context ends with it. */
static void forget_held(const struct context *ctx)
{
	for (size_t k = 0; k < n_held; k++)
		if (held[(first_held + k) % HELD].ctx == ctx)
			held[(first_held + k) % HELD].ctx = NULL;
}

static void hold(const struct allocation *a)
{
	while (n_held && (n_held == HELD || held_bytes + a->size > HELD_BYTES))
		let_go();
	held[(first_held + n_held++) % HELD] = *a;
	held_bytes += a->size;
}

CUresult vm_alloc(struct context *ctx, uint64_t size, bool of_module, uint64_t *addr)
{
	struct allocation a = { .size = size, .kind = ALLOCATION_DEVICE, .ctx = ctx, .ctx_id = ctx->id, .of_module = of_module };
	CUresult r;

	if (size > ctx->dev->total_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	WRITING();
	if (ctx->destroyed)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = chunk_take(ctx, &a);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && let_all_go())
		r = chunk_take(ctx, &a);
	if (r != CUDA_SUCCESS)
		return r;
	a.id = next_id();
	if (insert(&a)) {
		chunk_give_back(&a);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (drv.checks)
		vm_watch->allocated(&a);
	*addr = a.addr;
	return CUDA_SUCCESS;
}

CUresult vm_add_host(struct context *ctx, enum allocation_kind kind, uint64_t addr, uint64_t size, unsigned flags)
{
	struct allocation a = { .addr = addr, .size = size, .kind = kind, .ctx = ctx, .flags = flags };
	size_t i;

	WRITING();
	i = upper(addr + size - 1);
	if (i && items[i - 1].addr + items[i - 1].size > addr)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	a.id = next_id();
	return insert(&a) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void free_memory(const struct allocation *a)
{
	if (a->kind == ALLOCATION_DEVICE)
		chunk_give_back(a);
	else if (a->kind == ALLOCATION_HOST)
		munmap((void *)a->addr, a->size);
}

CUresult vm_remove(uint64_t addr, bool (*may)(const struct allocation *), struct allocation *out)
{
	struct allocation *a;
	bool checked;

	WRITING();
	a = find(addr);
	if (!a || a->addr != addr || !may(a))
		return CUDA_ERROR_INVALID_VALUE;
	*out = *a;
	erase(a);
	checked = drv.checks & PTX_CHECK_MEMORY && out->kind == ALLOCATION_DEVICE;
	if (checked)
		vm_watch->freed(out);
	if (checked && !out->borrowed) /* what another process lends goes back at once */
		hold(out);
	else
		free_memory(out);
	return CUDA_SUCCESS;
}

void vm_remove_context(struct context *ctx)
{
	size_t kept = 0;

	WRITING();
	for (size_t i = 0; i < n_items; i++) {
		if (items[i].ctx != ctx)
			items[kept++] = items[i];
		else if (items[i].kind != ALLOCATION_DEVICE)
			free_memory(&items[i]);
	}
	n_items = kept;
	forget_held(ctx);
	while (ctx->chunks)
		chunk_drop(ctx->chunks);
}

bool vm_find(uint64_t addr, struct allocation *out)
{
	const struct allocation *a;

	READING();
	a = find(addr);
	if (a)
		*out = *a;
	return a != NULL;
}

/* Neighbours of one device are used as one: that is what memory is mapped for. */
static bool continues(const struct allocation *a, const struct allocation *next)
{
	return next->kind == ALLOCATION_MAPPED && next->addr == a->addr + a->size && next->access == a->access && next->dev == a->dev;
}

static bool contains(uint64_t addr, uint64_t size, struct allocation *out)
{
	const struct allocation *a = find(addr), *end = items + n_items;

	if (!a || (a->kind == ALLOCATION_MAPPED && !a->access))
		return false;
	*out = *a;
	while (size > a->addr + a->size - addr) {
		if (a->kind != ALLOCATION_MAPPED || a + 1 == end || !continues(a, a + 1))
			return false;
		a++;
	}
	return true;
}

bool vm_contains(uint64_t addr, uint64_t size, struct allocation *out)
{
	READING();
	return contains(addr, size, out);
}

bool vm_use(uint64_t addr, uint64_t size, void (*use)(void *), void *what)
{
	struct allocation a;

	READING();
	if (!contains(addr, size, &a))
		return false;
	use(what);
	return true;
}

void vm_neighbours(uint64_t addr, struct allocation *below, struct allocation *above)
{
	size_t i;

	READING();
	i = upper(addr);
	if (i)
		*below = items[i - 1];
	if (i < n_items)
		*above = items[i];
}

size_t vm_count(const struct context *ctx, uint64_t *bytes)
{
	size_t n = 0;

	READING();
	for (size_t i = 0; i < n_items; i++) {
		if (items[i].ctx != ctx || items[i].kind != ALLOCATION_DEVICE || items[i].of_module || items[i].borrowed)
			continue;
		*bytes += items[i].size;
		n++;
	}
	return n;
}

bool vm_update(uint64_t addr, void (*change)(struct allocation *, const void *), const void *arg)
{
	struct allocation *a;

	WRITING();
	a = find(addr);
	if (a)
		change(a, arg);
	return a != NULL;
}

/* ---- what processes lend each other: ipc.h */

struct chunk *vm_lend(uint64_t id, bool pooled, struct ipc_offer *offer, int *file)
{
	WRITING();
	for (size_t i = 0; i < n_items; i++) {
		const struct allocation *a = &items[i];

		if (a->id != id || !(pooled ? a->pool && !a->borrowed : vm_is_lendable(a)))
			continue;
		*offer = (struct ipc_offer){ .gpu = a->chunk->dev->gpu, .gi_id = a->chunk->dev->gi_id, .ci_id = a->chunk->dev->ci_id,
					     .file_offset = a->chunk->addr - a->chunk->dev->file_base, .bytes = a->chunk->bytes,
					     .inside = a->addr - a->chunk->addr, .size = a->size };
		*file = a->chunk->dev->file;
		a->chunk->lent++;
		if (drv.checks)
			vm_watch->lent(a);
		return a->chunk;
	}
	return NULL;
}

void vm_take_back(struct chunk *c)
{
	WRITING();
	chunk_take_back(c);
}

CUresult vm_borrow(struct context *ctx, const struct ipc_offer *offer, int file, int line, uint64_t *addr)
{
	struct allocation a = { .size = offer->size, .kind = ALLOCATION_DEVICE, .ctx = ctx, .ctx_id = ctx->id, .borrowed = true };
	struct chunk *c = calloc(1, sizeof(*c));
	CUresult r;

	if (!c) {
		close(line);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct chunk){ .ctx = ctx, .dev = ctx->dev, .bytes = offer->bytes, .line = -1 };
	WRITING();
	r = ctx->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : chunk_borrow(c, offer, file);
	if (r != CUDA_SUCCESS) {
		close(line);
		free(c);
		return r;
	}
	a.addr = c->addr + offer->inside;
	a.id = next_id();
	a.chunk = c;
	c->next = ctx->chunks;
	ctx->chunks = c;
	c->line = line;
	if (insert(&a)) {
		chunk_drop(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (drv.checks)
		vm_watch->lent(&a);
	*addr = a.addr;
	return CUDA_SUCCESS;
}
