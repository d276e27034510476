/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 that records: every call with its arguments goes to a log that the test reads, and a call can be told to
 * fail. No memory, no kernels; handles are numbers. For tests of what the runtime asks of a driver.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 16];
static size_t used;
static struct {
	char name[64];
	CUresult result;
} failures[16];
static int devices = 2, version = 13000;
static unsigned long long next_handle = 0x1000;
static __thread CUcontext current, below;

const char *stub_log(void)
{
	return text;
}

void stub_clear(void)
{
	used = 0;
	text[0] = 0;
	memset(failures, 0, sizeof(failures));
}

void stub_fail(const char *name, int result)
{
	for (int i = 0; i < 16; i++) {
		if (!failures[i].name[0] || !strcmp(failures[i].name, name)) {
			snprintf(failures[i].name, sizeof(failures[i].name), "%s", name);
			failures[i].result = result;
			return;
		}
	}
}

void stub_machine(int n_devices, int driver_version)
{
	devices = n_devices;
	version = driver_version;
}

static CUresult forced(const char *name)
{
	for (int i = 0; i < 16; i++)
		if (!strcmp(failures[i].name, name))
			return failures[i].result;
	return CUDA_SUCCESS;
}

__attribute__((format(printf, 2, 3))) static CUresult note(const char *name, const char *format, ...)
{
	va_list args;
	CUresult result;

	pthread_mutex_lock(&lock);
	va_start(args, format);
	used += snprintf(text + used, sizeof(text) - used, "%s ", name);
	used += vsnprintf(text + used, sizeof(text) - used, format, args);
	used += snprintf(text + used, sizeof(text) - used, "\n");
	va_end(args);
	result = forced(name);
	pthread_mutex_unlock(&lock);
	return result;
}
#define NOTE(...) note(__func__, __VA_ARGS__)
/* Calls that the runtime makes all the time are left out of the log. */
#define QUIET forced(__func__)

static void *handle(void)
{
	return (void *)(next_handle += 0x10);
}

/* Finishes a call that hands something out. */
#define GIVES(out, value, ...)                     \
	({                                         \
		CUresult result_ = NOTE(__VA_ARGS__);\
		if (result_ == CUDA_SUCCESS)       \
			*(out) = (value);          \
		result_;                           \
	})

/* As a driver that asks a helper to load its kernel module. */
CUresult cuInit(unsigned int flags)
{
	pid_t helper = fork();

	if (helper == 0)
		_exit(0);
	waitpid(helper, NULL, 0);
	return NOTE("%u", flags);
}
CUresult cuDriverGetVersion(int *out) { return *out = version, QUIET; }
CUresult cuDeviceGetCount(int *out) { return *out = devices, QUIET; }
CUresult cuDeviceGet(CUdevice *out, int i) { return *out = 100 + i, QUIET; }
CUresult cuDeviceGetName(char *out, int n, CUdevice d) { return snprintf(out, n, "stub %d", d - 100), QUIET; }
CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d) { return memset(out, d, 16), QUIET; }
CUresult cuDeviceTotalMem(size_t *out, CUdevice d) { return *out = (size_t)d << 30, QUIET; }
/* every attribute has its own value */
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute a, CUdevice d)
{
	(void)d;
	*out = 1000 + a;
	return QUIET;
}
CUresult cuDeviceGetPCIBusId(char *out, int n, CUdevice d) { return snprintf(out, n, "0000:%02x:00.0", d), QUIET; }
CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *id) { return GIVES(out, 101, "%s", id); }
CUresult cuGetErrorString(CUresult error, const char **out)
{
	*out = error == CUDA_ERROR_OUT_OF_MEMORY ? "the driver's own words" : NULL;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetProcAddress(const char *name, void **out, int v, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUresult result = NOTE("%s %d %llu", name, v, (unsigned long long)flags);

	*status = result ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
	*out = result ? NULL : (void *)0x77;
	return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) { return GIVES(out, (CUcontext)(0x500L + d), "%d", d); }
CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return NOTE("%d", d); }
CUresult cuDevicePrimaryCtxReset(CUdevice d) { return NOTE("%d", d); }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned int flags) { return NOTE("%d %u", d, flags); }
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned int *flags, int *active)
{
	(void)d;
	*flags = CU_CTX_SCHED_YIELD;
	*active = 0;
	return QUIET;
}
CUresult cuCtxGetCurrent(CUcontext *out) { return *out = current, QUIET; }
CUresult cuCtxSetCurrent(CUcontext c) { return current = c, NOTE("%p", (void *)c); }
/* a stack of two */
CUresult cuCtxPushCurrent(CUcontext c) { return below = current, current = c, QUIET; }
CUresult cuCtxPopCurrent(CUcontext *out) { return *out = current, current = below, QUIET; }
CUresult cuCtxGetDevice(CUdevice *out) { return *out = (CUdevice)((long)current - 0x500), QUIET; }
CUresult cuCtxGetId(CUcontext c, unsigned long long *out) { return *out = (unsigned long long)c, QUIET; }
CUresult cuCtxGetFlags(unsigned int *out) { return *out = CU_CTX_SCHED_BLOCKING_SYNC, QUIET; }
CUresult cuCtxSynchronize(void) { return NOTE("%s", ""); }
CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return NOTE("%d %zu", limit, value); }

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	return GIVES(out, handle(), "%p in %p", image, (void *)current);
}
CUresult cuModuleUnload(CUmodule m) { return NOTE("%p", (void *)m); }
CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
	(void)m;
	return strstr(name, "missing") ? CUDA_ERROR_NOT_FOUND : GIVES(out, handle(), "%s", name);
}
CUresult cuModuleGetGlobal(CUdeviceptr *out, size_t *size, CUmodule m, const char *name)
{
	(void)m;
	*size = 64;
	return strstr(name, "missing") ? CUDA_ERROR_NOT_FOUND : GIVES(out, 0xd0000, "%s", name);
}
CUresult cuLinkCreate(unsigned int n, CUjit_option *o, void **v, CUlinkState *out)
{
	(void)n, (void)o, (void)v;
	return GIVES(out, handle(), "%s", "");
}
CUresult cuLinkAddData(CUlinkState s, CUjitInputType type, void *data, size_t size, const char *name, unsigned int n,
		       CUjit_option *o, void **v)
{
	(void)s, (void)name, (void)n, (void)o, (void)v;
	stub_fail("cuModuleLoadData", CUDA_SUCCESS);
	return NOTE("%d %p %zu", type, data, size);
}
CUresult cuLinkComplete(CUlinkState s, void **out, size_t *size)
{
	(void)s;
	*size = 1;
	return GIVES(out, (void *)0xc0b1, "%s", "");
}
CUresult cuLinkDestroy(CUlinkState s) { return (void)s, NOTE("%s", ""); }
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute a, CUfunction f) { return (void)f, *out = 500 + a, QUIET; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return (void)f, NOTE("%d %d", a, v); }
CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	(void)f;
	if (i >= 3)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = 8 * i;
	if (size)
		*size = 8;
	return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, CUstream s, void **args, void **extra)
{
	(void)f, (void)extra;
	return NOTE("%u,%u,%u %u,%u,%u %u stream %p arg %d", gx, gy, gz, bx, by, bz, shared, (void *)s,
		    args ? *(int *)args[0] : -1);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				   unsigned bz, unsigned shared, CUstream s, void **args)
{
	(void)f, (void)args;
	return NOTE("%u,%u,%u %u,%u,%u %u stream %p", gx, gy, gz, bx, by, bz, shared, (void *)s);
}
CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	fn(data);
	return NOTE("stream %p", (void *)s);
}

CUresult cuMemGetInfo(size_t *f, size_t *t) { return *f = 10, *t = 20, QUIET; }
CUresult cuMemAlloc(CUdeviceptr *out, size_t n) { return GIVES(out, 0xa0000, "%zu", n); }
CUresult cuMemAllocPitch(CUdeviceptr *out, size_t *pitch, size_t w, size_t h, unsigned e)
{
	*pitch = 512;
	return GIVES(out, 0xa0000, "%zu %zu %u", w, h, e);
}
CUresult cuMemFree(CUdeviceptr p) { return NOTE("%#llx", p); }
CUresult cuMemHostAlloc(void **out, size_t n, unsigned flags) { return GIVES(out, (void *)0xb0000, "%zu %u", n, flags); }
CUresult cuMemFreeHost(void *p) { return NOTE("%p", p); }
CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return NOTE("%#llx %#llx %zu", d, s, n); }
CUresult cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n) { return NOTE("%#llx %p %zu", d, s, n); }
CUresult cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n) { return NOTE("%p %#llx %zu", d, s, n); }
CUresult cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n) { return NOTE("%#llx %#llx %zu", d, s, n); }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t)
{
	return NOTE("%#llx %#llx %zu stream %p", d, s, n, (void *)t);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *s, size_t n, CUstream t)
{
	return NOTE("%#llx %p %zu stream %p", d, s, n, (void *)t);
}
CUresult cuMemcpyDtoHAsync(void *d, CUdeviceptr s, size_t n, CUstream t)
{
	return NOTE("%p %#llx %zu stream %p", d, s, n, (void *)t);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t)
{
	return NOTE("%#llx %#llx %zu stream %p", d, s, n, (void *)t);
}
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *c)
{
	return NOTE("%d %p %#llx %zu -> %d %p %#llx %zu, %zu x %zu", c->srcMemoryType, c->srcHost, c->srcDevice,
		    c->srcPitch, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstPitch, c->WidthInBytes, c->Height);
}
CUresult cuMemcpy3D(const CUDA_MEMCPY3D *c)
{
	return NOTE("%d %zu,%zu,%zu %zu*%zu -> %d %zu,%zu,%zu %zu*%zu, %zu x %zu x %zu", c->srcMemoryType,
		    c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch, c->srcHeight, c->dstMemoryType, c->dstXInBytes,
		    c->dstY, c->dstZ, c->dstPitch, c->dstHeight, c->WidthInBytes, c->Height, c->Depth);
}
CUresult cuMemsetD8(CUdeviceptr p, unsigned char v, size_t n) { return NOTE("%#llx %u %zu", p, v, n); }
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s)
{
	return NOTE("%#llx %u %zu stream %p", p, v, n, (void *)s);
}
CUresult cuMemsetD2D8(CUdeviceptr p, size_t pitch, unsigned char v, size_t w, size_t h)
{
	return NOTE("%#llx %zu %u %zu %zu", p, pitch, v, w, h);
}
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *names, void **values, CUdeviceptr p)
{
	for (unsigned i = 0; i < n; i++)
		if (p == 0xa0000 && names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned *)values[i] = CU_MEMORYTYPE_DEVICE;
		else if (p == 0xa0000 && names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)values[i] = 1;
		else if (p == 0xa0000 && names[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
			*(CUdeviceptr *)values[i] = p;
	return QUIET;
}
CUresult cuStreamCreate(CUstream *out, unsigned flags) { return GIVES(out, handle(), "%u", flags); }
CUresult cuStreamSynchronize(CUstream s) { return NOTE("%p", (void *)s); }
CUresult cuStreamQuery(CUstream s) { return NOTE("%p", (void *)s); }
CUresult cuStreamAddCallback(CUstream s, CUstreamCallback callback, void *data, unsigned flags)
{
	CUresult result = NOTE("%p %u", (void *)s, flags);

	if (result == CUDA_SUCCESS)
		callback(s, CUDA_ERROR_LAUNCH_FAILED, data);
	return result;
}
CUresult cuEventCreate(CUevent *out, unsigned flags) { return GIVES(out, handle(), "%u", flags); }
/* the second version for the runtime of 13, the first for that of 12 */
CUresult cuEventElapsedTime(float *out, CUevent a, CUevent b) { return (void)a, (void)b, GIVES(out, 1.5f, "%s", ""); }
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *out, CUevent a, CUevent b) { return (void)a, (void)b, GIVES(out, 1.5f, "%s", ""); }
CUresult cuEventRecord(CUevent e, CUstream s) { return (void)e, NOTE("stream %p", (void *)s); }
