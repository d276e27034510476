/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management. Physical memory is shared memory of the process, which is mapped once for each cuMemMap and once
 * for itself; addresses come from a range that the process has reserved. All under drv.lock, so that what is checked of
 * several mappings holds until they are changed.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc.h"

struct physical {
	struct physical *next;    /* of those that can be shared */
	struct device *dev;
	CUmemAllocationProp properties;
	uint64_t bytes, id;       /* id 0: it cannot be shared */
	void *memory;
	size_t handles, mappings, lent; /* it ends with the last of all */
	int line;                 /* to the process that it is borrowed from; -1: it is our own */
};
static struct physical *shareable;

/* What can be shared lies in one file, one behind the other: descriptors are few. */
static struct {
	int file;                 /* -1: there is none yet */
	uint64_t used;
} storage = { .file = -1 };

/* Reserved addresses, sorted. `asked` is what the program knows; whole granules are taken. */
struct space {
	uint64_t addr, bytes, asked;
};
static struct space *spaces;
static size_t n_spaces, size_spaces;

/* ---- physical memory */

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
				       CUmemAllocationGranularity_flags option)
{
	CUresult r = cuda_check_granularity(granularity, properties, option);

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	if (!device_find(properties->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	*granularity = GRANULE;
	return CUDA_SUCCESS;
}

static void physical_end(struct physical *p)
{
	for (struct physical **at = &shareable; *at; at = &(*at)->next) {
		if (*at == p) {
			*at = p->next;
			break;
		}
	}
	if (p->memory && p->id)
		madvise(p->memory, p->bytes, MADV_REMOVE);
	if (p->memory)
		munmap(p->memory, p->bytes);
	if (p->line < 0)
		client_uncharge(p->dev, p->bytes);
	else
		close(p->line);
	client_detach(p->dev);
	free(p);
}

static void physical_end_unused(struct physical *p)
{
	if (!p->handles && !p->mappings && !p->lent)
		physical_end(p);
}

static void *map_shared(int file, uint64_t at, uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0), file,
			    (off_t)at);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Its id is its place in the file, and so never another's. */
static void take_storage(struct physical *p)
{
	if (storage.file < 0)
		storage.file = memfd_create("vgpumgr-sim-physical", MFD_CLOEXEC);
	if (storage.file < 0 || ftruncate(storage.file, (off_t)(storage.used + p->bytes)))
		return;
	p->memory = map_shared(storage.file, storage.used, p->bytes);
	storage.used += p->bytes;
	p->id = storage.used;
	p->next = shareable;
	shareable = p;
}

/* The process is a client of the device by it, as by a context. */
static CUresult physical_charge(struct device *dev, uint64_t bytes)
{
	CUresult r = bytes > dev->total_bytes ? CUDA_ERROR_OUT_OF_MEMORY : client_attach(dev);

	if (r != CUDA_SUCCESS)
		return r;
	r = client_charge(dev, bytes);
	if (r != CUDA_SUCCESS)
		client_detach(dev);
	return r;
}

static CUresult physical_create(struct device *dev, uint64_t bytes, const CUmemAllocationProp *properties,
				struct physical **out)
{
	struct physical *p;
	CUresult r = physical_charge(dev, bytes);

	if (r != CUDA_SUCCESS)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p) {
		client_uncharge(dev, bytes);
		client_detach(dev);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*p = (struct physical){ .dev = dev, .properties = *properties, .bytes = bytes, .handles = 1, .line = -1 };
	if (properties->requestedHandleTypes)
		take_storage(p);
	else
		p->memory = map_shared(-1, 0, bytes);
	if (!p->memory || handle_add(p, HANDLE_PHYSICAL)) {
		physical_end(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = p;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *properties,
		     unsigned long long flags)
{
	struct physical *p;
	struct device *dev;
	CUresult r = cuda_check_physical(properties);

	DRIVER_CHECK();
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	dev = device_find(properties->location.id);
	if (!dev)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!bytes || bytes % GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	DRV_LOCKED();
	r = physical_create(dev, bytes, properties, &p);
	if (r == CUDA_SUCCESS)
		*out = (CUmemGenericAllocationHandle)p;
	return r;
}

static struct physical *physical_find(CUmemGenericAllocationHandle handle)
{
	return handle_is((const void *)handle, HANDLE_PHYSICAL) ? (struct physical *)handle : NULL;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct physical *p;

	DRIVER_CHECK();
	DRV_LOCKED();
	p = physical_find(handle);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (--p->handles)
		return CUDA_SUCCESS;
	handle_remove(p);
	physical_end_unused(p);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
	const struct physical *p;

	DRIVER_CHECK();
	DRV_LOCKED();
	p = physical_find(handle);
	if (!out || !p)
		return CUDA_ERROR_INVALID_VALUE;
	*out = p->properties;
	return CUDA_SUCCESS;
}

/* ---- between processes: shareable.c */

CUresult physical_export(CUmemGenericAllocationHandle handle, uint64_t *id)
{
	const struct physical *p = physical_find(handle);

	if (!p || !p->properties.requestedHandleTypes)
		return CUDA_ERROR_INVALID_VALUE;
	*id = p->id;
	return p->line < 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED; /* it is its maker's to hand on */
}

static struct physical *find_shareable(uint64_t id)
{
	struct physical *p = shareable;

	while (p && p->id != id)
		p = p->next;
	return p && (p->handles || p->mappings) ? p : NULL;
}

struct physical *physical_lend(uint64_t id, struct ipc_offer *offer, int *file)
{
	struct physical *p = find_shareable(id);

	if (!p)
		return NULL;
	*offer = (struct ipc_offer){ .gpu = p->dev->gpu, .gi_id = p->dev->gi_id, .ci_id = p->dev->ci_id,
				     .file_offset = p->id - p->bytes, .bytes = p->bytes, .size = p->bytes };
	*file = storage.file;
	p->lent++;
	return p;
}

void physical_take_back(struct physical *p)
{
	p->lent--;
	physical_end_unused(p);
}

CUresult physical_again(uint64_t id, CUmemGenericAllocationHandle *out)
{
	struct physical *p = find_shareable(id);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!p->handles && handle_add(p, HANDLE_PHYSICAL))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->handles++;
	*out = (CUmemGenericAllocationHandle)p;
	return CUDA_SUCCESS;
}

/* Its maker is charged for it. */
CUresult physical_import(struct device *dev, const struct ipc_offer *offer, int file, int line, CUmemGenericAllocationHandle *out)
{
	struct physical *p = calloc(1, sizeof(*p));
	CUresult r = p ? client_attach(dev) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(p);
		close(line);
		return r;
	}
	*p = (struct physical){ .dev = dev, .bytes = offer->bytes, .handles = 1, .line = line };
	p->properties = (CUmemAllocationProp){ .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = cuda_location_of(dev->ordinal),
					       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };
	p->memory = map_shared(file, offer->file_offset, offer->bytes);
	if (!p->memory || handle_add(p, HANDLE_PHYSICAL)) {
		physical_end(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = (CUmemGenericAllocationHandle)p;
	return CUDA_SUCCESS;
}

/* ---- addresses */

/* Index of the first space that starts after addr. */
static size_t upper(uint64_t addr)
{
	size_t i = 0;

	while (i < n_spaces && spaces[i].addr <= addr)
		i++;
	return i;
}

static struct space *space_find(uint64_t addr)
{
	size_t i = upper(addr);

	return i && addr - spaces[i - 1].addr < spaces[i - 1].bytes ? &spaces[i - 1] : NULL;
}

bool virtual_space(uint64_t addr, uint64_t *start, uint64_t *bytes)
{
	const struct space *s;

	DRV_LOCKED();
	s = space_find(addr);
	if (!s)
		return false;
	*start = s->addr;
	*bytes = s->asked;
	return true;
}

static bool is_free(uint64_t addr, uint64_t bytes, uint64_t base, uint64_t room)
{
	size_t i = upper(addr);

	if (addr < base || addr - base > room || bytes > room - (addr - base))
		return false;
	return !(i && spaces[i - 1].addr + spaces[i - 1].bytes > addr) && !(i < n_spaces && spaces[i].addr < addr + bytes);
}

/* The lowest place that is free; 0: none. Both are multiples of the granule, the alignment a power of two. */
static uint64_t place(uint64_t bytes, uint64_t alignment, uint64_t base, uint64_t room)
{
	for (size_t i = 0; i <= n_spaces; i++) {
		uint64_t addr = i ? spaces[i - 1].addr + spaces[i - 1].bytes : base;

		if (__builtin_add_overflow(addr, alignment - 1, &addr))
			return 0;
		addr &= ~(alignment - 1);
		if (is_free(addr, bytes, base, room))
			return addr;
	}
	return 0;
}

static bool insert(const struct space *s)
{
	size_t i = upper(s->addr);

	if (n_spaces == size_spaces) {
		size_t size = size_spaces ? size_spaces * 2 : 64;
		struct space *grown = realloc(spaces, size * sizeof(*grown));

		if (!grown)
			return false;
		spaces = grown;
		size_spaces = size;
	}
	memmove(&spaces[i + 1], &spaces[i], (n_spaces - i) * sizeof(*spaces));
	spaces[i] = *s;
	n_spaces++;
	return true;
}

static CUresult reserve(uint64_t asked, uint64_t alignment, uint64_t wish, CUdeviceptr *out)
{
	struct space s = { .asked = asked };
	uint64_t room, base = vm_arena(&room);

	if (!base || asked > room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s.bytes = (asked + GRANULE - 1) / GRANULE * GRANULE;
	if (alignment < GRANULE)
		alignment = GRANULE;
	if (wish && wish % alignment == 0 && is_free(wish, s.bytes, base, room))
		s.addr = wish;
	else
		s.addr = place(s.bytes, alignment, base, room);
	if (!s.addr || !insert(&s))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = s.addr;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
	CUresult r = cuda_check_reserve(out, bytes, alignment, wish, flags);

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	return reserve(bytes, alignment, wish, out);
}

static bool has_mapping(uint64_t addr, uint64_t bytes)
{
	struct allocation a;

	for (uint64_t i = 0; i < bytes; i += GRANULE) {
		if (vm_find(addr + i, &a))
			return true;
	}
	return false;
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t bytes)
{
	struct space *s;

	DRIVER_CHECK();
	DRV_LOCKED();
	s = space_find(addr);
	if (!s || s->addr != addr || s->asked != bytes || has_mapping(addr, s->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memmove(s, s + 1, (size_t)(&spaces[--n_spaces] - s) * sizeof(*s));
	return CUDA_SUCCESS;
}

/* ---- mappings */

CUresult cuMemMap(CUdeviceptr addr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct allocation a = { .addr = addr, .size = bytes, .kind = ALLOCATION_MAPPED };
	const struct space *s;
	CUresult r = cuda_check_map(addr, bytes, offset, GRANULE, flags);

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	a.physical = physical_find(handle);
	s = space_find(addr);
	if (!a.physical || bytes > a.physical->bytes || !s || addr - s->addr > s->asked ||
	    bytes > s->asked - (addr - s->addr) || has_mapping(addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes < a.physical->bytes) /* a part of it: refused by 580.159 on an H200 */
		return CUDA_ERROR_NOT_SUPPORTED;
	a.dev = a.physical->dev;
	r = vm_map(&a, a.physical->memory);
	if (r == CUDA_SUCCESS)
		a.physical->mappings++;
	return r;
}

static bool find_mapping(uint64_t addr, struct allocation *a)
{
	return vm_find(addr, a) && a->kind == ALLOCATION_MAPPED;
}

/* Whether no mapping is cut by the range's ends. */
static bool is_uncut(uint64_t addr, uint64_t bytes)
{
	struct allocation a;

	return !(find_mapping(addr, &a) && a.addr != addr) &&
	       !(find_mapping(addr + bytes - 1, &a) && a.addr + a.size != addr + bytes);
}

/* Whether the range consists of whole mappings, without gaps. */
static bool is_mapped(uint64_t addr, uint64_t bytes)
{
	struct allocation a;

	if (!bytes)
		return false;
	for (; bytes; addr += a.size, bytes -= a.size) {
		if (!find_mapping(addr, &a) || a.addr != addr || a.size > bytes)
			return false;
	}
	return true;
}

/*
 * What runs may still use it: as on a GPU, that is for the program to wait for. Reserved addresses where nothing is mapped
 * may be among them (so it is on an H200, bench/results/2026-11-27-h200/questions.txt).
 */
CUresult cuMemUnmap(CUdeviceptr addr, size_t bytes)
{
	CUresult r = cuda_check_mappable(addr, bytes, GRANULE);
	uint64_t room, base;
	struct allocation a;

	DRIVER_CHECK();
	if (r != CUDA_SUCCESS)
		return r;
	base = vm_arena(&room);
	DRV_LOCKED();
	if (!space_find(addr) || bytes > room - (addr - base) || !is_uncut(addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t end = addr + bytes; addr < end; addr += a.size) {
		if (!find_mapping(addr, &a)) {
			a.size = GRANULE;
			continue;
		}
		vm_unmap(a.addr);
		a.physical->mappings--;
		physical_end_unused(a.physical);
	}
	return CUDA_SUCCESS;
}

static void set_devices(struct allocation *a, const void *value)
{
	a->access = *(const uint32_t *)value;
}

static struct cuda_reach reach_of(const struct allocation *a)
{
	return (struct cuda_reach){ a->dev->ordinal, drv.n_devices, peer_devices(a->dev), a->access };
}

/* `change` false: only checks. */
static CUresult set_access(uint64_t addr, uint64_t bytes, const CUmemAccessDesc *list, size_t count, bool change)
{
	CUresult r = CUDA_SUCCESS;
	struct allocation a;

	for (uint64_t end = addr + bytes; r == CUDA_SUCCESS && addr < end && find_mapping(addr, &a); addr += a.size) {
		struct cuda_reach reach = reach_of(&a);

		r = cuda_set_mapped_access(list, count, &reach);
		if (r == CUDA_SUCCESS && change)
			vm_update(addr, set_devices, &reach.access);
	}
	return r;
}

CUresult cuMemSetAccess(CUdeviceptr addr, size_t bytes, const CUmemAccessDesc *list, size_t count)
{
	CUresult r;

	DRIVER_CHECK();
	DRV_LOCKED();
	if (!is_mapped(addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	r = set_access(addr, bytes, list, count, false);
	return r == CUDA_SUCCESS ? set_access(addr, bytes, list, count, true) : r;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr)
{
	struct allocation a;
	CUresult r;

	DRIVER_CHECK();
	r = cuda_check_access_place(flags, location, drv.n_devices);
	if (r != CUDA_SUCCESS)
		return r;
	if (!find_mapping(addr, &a))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = a.access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
	struct allocation a;

	DRIVER_CHECK();
	DRV_LOCKED();
	if (!out || !find_mapping((uint64_t)addr, &a))
		return CUDA_ERROR_INVALID_VALUE;
	if (!a.physical->handles && handle_add(a.physical, HANDLE_PHYSICAL))
		return CUDA_ERROR_OUT_OF_MEMORY;
	a.physical->handles++;
	*out = (CUmemGenericAllocationHandle)a.physical;
	return CUDA_SUCCESS;
}
