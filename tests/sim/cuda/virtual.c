/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: what is allowed in which order, by which code the rest is refused, and what memory it takes. */
#include "check.h"

enum { PARTS = 4, VALUES = 64 };

static size_t unit;
static CUcontext context;
static CUmemAllocationProp properties;
static CUfunction add_to;

static void begin(void)
{
	context = new_context();
	add_to = find_kernel(load_kernels(), "add_to");
	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

static CUmemGenericAllocationHandle create(size_t units)
{
	CUmemGenericAllocationHandle made;

	OK(cuMemCreate(&made, units * unit, &properties, 0));
	return made;
}

static CUdeviceptr reserve(size_t units)
{
	CUdeviceptr at;

	OK(cuMemAddressReserve(&at, units * unit, 0, 0, 0));
	return at;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = { .location = properties.location, .flags = flags };

	return cuMemSetAccess(at, bytes, &access, 1);
}

static CUresult allow(CUdeviceptr at, size_t bytes)
{
	return set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static unsigned long long access_of(CUdeviceptr at)
{
	unsigned long long flags = 99;

	OK(cuMemGetAccess(&flags, &properties.location, at));
	return flags;
}

static unsigned read_word(CUdeviceptr at)
{
	unsigned value;

	OK(cuMemcpyDtoH(&value, at, sizeof(value)));
	return value;
}

static CUresult add(CUdeviceptr p, unsigned much)
{
	void *params[] = { &p, &much };

	OK(cuLaunchKernel(add_to, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	return cuCtxSynchronize();
}

/* Parts of which each has memory of its own are used as one, by copies, fills and kernels, across their borders. */
static void neighbours(void)
{
	unsigned in[VALUES], out[VALUES];
	CUmemGenericAllocationHandle part;
	CUdeviceptr at, border;
	size_t before, bytes;

	begin();
	before = available();
	bytes = PARTS * unit;
	at = reserve(PARTS);
	EXPECT(before == available()); /* addresses alone take none */
	for (size_t i = 0; i < PARTS; i++) {
		part = create(1);
		OK(cuMemMap(at + i * unit, unit, 0, part, 0));
		OK(cuMemRelease(part));
	}
	EXPECT(before - available() == bytes);
	OK(allow(at, bytes));
	OK(cuMemsetD8(at, 7, bytes));
	for (unsigned i = 0; i < VALUES; i++)
		in[i] = i * i;
	border = at + unit - sizeof(in) / 2;
	OK(cuMemcpyHtoD(border, in, sizeof(in)));
	OK(cuMemcpyDtoD(border + unit, border, sizeof(in)));
	OK(cuMemcpyDtoH(out, border + unit, sizeof(out)));
	EXPECT(!memcmp(in, out, sizeof(in)));
	OK(add(at + unit - 4, 5));
	OK(add(at + unit, 5));
	EXPECT(read_word(at + unit - 4) == in[VALUES / 2 - 1] * 3 + 5 && read_word(at + unit) == in[VALUES / 2] * 3 + 5);
	EXPECT(read_word(at + bytes - 4) == 0x07070707);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(at + bytes - 4, in, 8));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at, 7, bytes + 1));
	OK(cuMemUnmap(at, bytes)); /* all of them in one call */
	EXPECT(before == available());
	OK(cuMemAddressFree(at, bytes));
}

/* One memory at two places; it stays as long as a handle or a mapping does. */
static void lifetime(void)
{
	CUmemGenericAllocationHandle part, again;
	CUmemAllocationProp asked = { 0 };
	CUdeviceptr at;
	size_t before;

	begin();
	before = available();
	at = reserve(2);
	part = create(1);
	OK(cuMemGetAllocationPropertiesFromHandle(&asked, part));
	EXPECT(asked.type == properties.type && asked.location.type == properties.location.type && !asked.location.id);
	OK(cuMemMap(at, unit, 0, part, 0));
	OK(cuMemMap(at + unit, unit, 0, part, 0));
	OK(allow(at, 2 * unit));
	OK(cuMemsetD32(at, 11, 1));
	EXPECT(read_word(at + unit) == 11);
	OK(cuMemRelease(part));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRelease(part));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&asked, part));
	OK(cuMemUnmap(at, unit));
	EXPECT(before - available() == unit && read_word(at + unit) == 11);
	OK(cuMemRetainAllocationHandle(&again, (void *)(at + unit + 100)));
	EXPECT(again == part);
	OK(cuMemUnmap(at + unit, unit));
	EXPECT(before - available() == unit);
	OK(cuMemMap(at, unit, 0, again, 0));
	OK(allow(at, unit));
	EXPECT(read_word(at) == 11);
	OK(cuMemRetainAllocationHandle(&part, (void *)at));
	OK(cuMemRelease(again));
	OK(cuMemRelease(part));
	OK(cuMemUnmap(at, unit));
	EXPECT(before == available());
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)at));
	OK(cuMemAddressFree(at, 2 * unit));
}

/* A memory is mapped as a whole; a mapping is unmapped and opened as a whole. */
static void whole_mappings(void)
{
	CUmemGenericAllocationHandle two, part;
	CUdeviceptr at;

	begin();
	at = reserve(5);
	two = create(2);
	part = create(1);
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(at, unit, 0, two, 0));
	OK(cuMemMap(at, 2 * unit, 0, two, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + unit, unit, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, unit, unit, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, unit, 0, part, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, unit / 2, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit + 4096, unit, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, 0, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 4 * unit, 2 * unit, 0, two, 0)); /* beyond the addresses */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, unit, 0, part + 8, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemMap(at - (unit << 12), unit, 0, part, 0));
	OK(cuMemMap(at + 2 * unit, unit, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, allow(at, unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, allow(at + unit, 2 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, allow(at, 4 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + unit, unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + unit, 4 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 5 * unit)); /* still mapped */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFree(at));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(at, NULL));
	OK(cuMemUnmap(at + 4 * unit, unit)); /* nothing is mapped there */
	OK(cuMemUnmap(at, 4 * unit));
	OK(cuMemUnmap(at, 3 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 4 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at + unit, 4 * unit));
	OK(cuMemRelease(two));
	OK(cuMemRelease(part));
	OK(cuMemAddressFree(at, 5 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 5 * unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, unit));
}

/* Half a unit is neither mapped nor unmapped: all that is there stays, and is used. */
static void whole_units(void)
{
	CUmemGenericAllocationHandle part;
	CUdeviceptr at;
	size_t before;

	begin();
	before = available();
	at = reserve(3);
	part = create(1);
	OK(cuMemMap(at + unit, unit, 0, part, 0));
	OK(allow(at + unit, unit));
	OK(cuMemRelease(part));
	OK(cuMemsetD32(at + unit, 5, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + 4096, 2 * unit - 4096));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + 4096, unit));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + 2 * unit + 4096, 4096));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 4096)); /* also where nothing is mapped */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, (size_t)0 - unit));
	EXPECT(before - available() == unit);
	OK(add(at + unit, 2));
	EXPECT(read_word(at + unit) == 17);
	OK(cuMemUnmap(at, 3 * unit));
	EXPECT(before == available());
	OK(cuMemAddressFree(at, 3 * unit));
}

/* Nothing gets at memory that is not mapped, or mapped and not opened; a new mapping is not open. */
static void no_access(void)
{
	CUmemGenericAllocationHandle part;
	unsigned value = 1;
	CUdeviceptr at;

	begin();
	at = reserve(2);
	part = create(1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(at, &value, 4));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, allow(at, unit));
	OK(cuMemMap(at, unit, 0, part, 0));
	EXPECT(access_of(at) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(at, &value, 4));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(at, 1, 4));
	OK(allow(at, unit));
	EXPECT(access_of(at + unit - 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemsetD32(at, 3, 1));
	OK(add(at, 4));
	OK(cuMemUnmap(at, unit));
	OK(cuMemMap(at, unit, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&value, at, 4));
	OK(allow(at, unit));
	EXPECT(read_word(at) == 13);
	OK(set_access(at, unit, CU_MEM_ACCESS_FLAGS_PROT_NONE));
	EXPECT(access_of(at) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, add(at, 1));
}

static void unmapped_faults(void)
{
	begin();
	EXPECT_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, add(reserve(1), 1));
}

static void arguments(void)
{
	unsigned long long flags;
	CUmemLocation nowhere = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 77 };
	CUmemAccessDesc access = { .location = nowhere, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle part, other;
	CUmemAllocationProp p;
	CUdeviceptr at, wish;
	size_t n;

	begin();
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(NULL, &properties, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&n, NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&n, &properties, 2));
	OK(cuMemGetAllocationGranularity(&n, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	EXPECT(n >= unit && n % unit == 0);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&part, unit + 4096, &properties, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&part, 0, &properties, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&part, unit, &properties, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&part, unit, NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, unit, &properties, 0));
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&part, unit << 30, &properties, 0));
	p = properties;
	p.location.id = 77;
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&part, unit, &p, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemGetAllocationGranularity(&n, &p, 0));
	p = properties;
	p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&part, unit, &p, 0));
	p = properties;
	p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&part, unit, &p, 0));
	p = properties;
	p.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&part, unit, &p, 0));
	p = properties;
	OK(cuMemCreate(&part, unit, &properties, 0)); /* of which it was not said that it would be shared */
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuMemExportToShareableHandle(&n, part, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE,
		     cuMemImportFromShareableHandle(&other, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, 0, 0, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, unit + 1, 0, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, unit, 3 * unit, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, unit, 0, 0, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(NULL, unit, 0, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&at, (size_t)1 << 60, 0, 0, 0));
	OK(cuMemAddressReserve(&at, 2 * unit, 64 * unit, 0, 0));
	EXPECT(at % (64 * unit) == 0);
	OK(cuMemAddressReserve(&wish, unit, 0, at, 0)); /* taken: another place */
	EXPECT(wish != at && wish != at + unit);
	OK(cuMemAddressFree(at, 2 * unit));
	OK(cuMemAddressFree(wish, unit));
	wish = at;
	OK(cuMemAddressReserve(&at, 2 * unit, 0, wish, 0));
	EXPECT(at == wish);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &properties.location, at));
	OK(cuMemMap(at, unit, 0, part, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, unit, NULL, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, unit, &access, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(at, unit, &access, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuMemGetAccess(&flags, &nowhere, at));
	access.location.type = CU_MEM_LOCATION_TYPE_HOST;
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, cuMemSetAccess(at, unit, &access, 1));
	EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, set_access(at, unit, CU_MEM_ACCESS_FLAGS_PROT_READ));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, set_access(at, unit, 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(NULL, &properties.location, at));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, NULL, at));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(NULL, (void *)at));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(NULL, part));
}

static void pointers(void)
{
	CUmemGenericAllocationHandle part;
	CUcontext owner = (CUcontext)1;
	unsigned int type = 0, mapped = 7, managed = 7;
	int ordinal = -1, able = 0;
	CUdeviceptr at, base;
	size_t size;

	begin();
	OK(cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	EXPECT(able == 1);
	OK(cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
	EXPECT(able == 1);
	at = reserve(4);
	OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at + unit));
	EXPECT(!mapped);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
	EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, at));
	part = create(2);
	OK(cuMemMap(at + unit, 2 * unit, 0, part, 0));
	OK(allow(at + unit, 2 * unit));
	OK(cuMemGetAddressRange(&base, &size, at + 2 * unit + 1));
	EXPECT(base == at + unit && size == 2 * unit);
	OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + unit + 1));
	OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + unit + 1));
	EXPECT(base == at && size == 4 * unit); /* documented: of the reserved addresses */
	OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at + unit));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + unit));
	OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + unit));
	OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + unit));
	OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at + unit));
	EXPECT(mapped == 1 && type == CU_MEMORYTYPE_DEVICE && !managed && !ordinal && !owner);
}

/* It is of the device: every context of it gets at the memory, and the end of one leaves it where it is. */
static void contexts(void)
{
	CUmemGenericAllocationHandle part;
	CUcontext first, second;
	CUdeviceptr at;

	begin();
	first = context;
	at = reserve(1);
	part = create(1);
	OK(cuMemMap(at, unit, 0, part, 0));
	OK(allow(at, unit));
	OK(cuMemsetD32(at, 5, 1));
	OK(cuCtxSynchronize()); /* contexts do not wait for each other */
	OK(cuCtxCreate(&second, NULL, 0, 0));
	EXPECT(read_word(at) == 5);
	add_to = find_kernel(load_kernels(), "add_to");
	OK(add(at, 1)); /* synchronises */
	OK(cuCtxDestroy(first));
	EXPECT(read_word(at) == 16);
	OK(cuMemUnmap(at, unit));
	OK(cuMemRelease(part));
	OK(cuMemAddressFree(at, unit));
}

/* Without any context, too. */
static void without_context(void)
{
	CUmemGenericAllocationHandle part;
	CUdeviceptr at;

	OK(cuInit(0));
	properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	at = reserve(1);
	part = create(1);
	OK(cuMemMap(at, unit, 0, part, 0));
	OK(allow(at, unit));
	OK(cuMemUnmap(at, unit));
	OK(cuMemRelease(part));
	OK(cuMemAddressFree(at, unit));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "neighbours", neighbours }, { "lifetime", lifetime }, { "whole_mappings", whole_mappings },
		{ "whole_units", whole_units }, { "no_access", no_access }, { "unmapped_faults", unmapped_faults },
		{ "arguments", arguments }, { "pointers", pointers }, { "contexts", contexts },
		{ "without_context", without_context },
		{ NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
