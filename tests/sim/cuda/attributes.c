/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of streams and of pointers, and the driver's log. */
#include "check.h"

#include <math.h>
#include <unistd.h>

static void attributes(void)
{
	CUaccessPolicyWindow window = { .num_bytes = 4096, .hitRatio = 0.5F, .hitProp = CU_ACCESS_PROPERTY_PERSISTING,
					.missProp = CU_ACCESS_PROPERTY_STREAMING };
	CUstreamAttrValue v = { 0 }, back;
	CUdeviceptr memory;
	CUstream stream;
	int least, greatest, priority;

	new_context();
	OK(cuMemAlloc(&memory, 4096));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	/* as a stream begins */
	OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &back));
	EXPECT(back.syncPolicy == CU_SYNC_POLICY_AUTO);
	OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &back));
	EXPECT(back.memSyncDomainMap.default_ == 0 && back.memSyncDomainMap.remote == 1);
	/* what is set is read */
	window.base_ptr = (void *)(uintptr_t)memory;
	v.accessPolicyWindow = window;
	OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &back));
	EXPECT(back.accessPolicyWindow.base_ptr == window.base_ptr && back.accessPolicyWindow.hitRatio == 0.5F &&
	       back.accessPolicyWindow.hitProp == CU_ACCESS_PROPERTY_PERSISTING && back.accessPolicyWindow.num_bytes == 4096);
	v = (CUstreamAttrValue){ .priority = greatest };
	OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	OK(cuStreamGetPriority(stream, &priority));
	EXPECT(priority == greatest);
	v.priority = greatest - 1000;
	OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &back));
	EXPECT(back.priority == greatest);
	v = (CUstreamAttrValue){ .syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC };
	OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v = (CUstreamAttrValue){ .memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE };
	OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
	OK(cuStreamSynchronize(stream));
}

/* The default streams have some, too; two streams of one context give them to each other. */
static void copies(void)
{
	CUstreamAttrValue v = { .syncPolicy = CU_SYNC_POLICY_YIELD }, back;
	CUcontext second;
	CUstream a, elsewhere;

	new_context();
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamSetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	OK(cuStreamCopyAttributes(a, CU_STREAM_LEGACY));
	OK(cuStreamGetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &back));
	EXPECT(back.syncPolicy == CU_SYNC_POLICY_YIELD);
	OK(cuStreamGetAttribute(CU_STREAM_PER_THREAD, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &back));
	EXPECT(back.syncPolicy == CU_SYNC_POLICY_AUTO);
	OK(cuCtxCreate(&second, NULL, 0, 0));
	OK(cuStreamCreate(&elsewhere, CU_STREAM_NON_BLOCKING));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamCopyAttributes(elsewhere, a));
	OK(cuStreamDestroy(a));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuStreamCopyAttributes(elsewhere, a));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuStreamGetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &back));
}

struct racer {
	int number;
	CUcontext context;
	CUstream stream;
};

/* Each thread sets an attribute of its own, and reads what it has set. */
static void *set_one(void *which)
{
	static CUstreamAttrValue values[][2] = {
		{ { .memSyncDomainMap = { 0, 1 } }, { .memSyncDomainMap = { 1, 0 } } },
		{ { .memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT }, { .memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE } },
	};
	static const CUstreamAttrID ids[] = { CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN };
	const struct racer *mine = which;
	static const size_t used[] = { sizeof(CUlaunchMemSyncDomainMap), sizeof(CUlaunchMemSyncDomain) };
	CUstreamAttrValue back;

	OK(cuCtxSetCurrent(mine->context));
	for (int i = 0; i < 500; i++) {
		const CUstreamAttrValue *value = &values[mine->number][i % 2];

		OK(cuStreamSetAttribute(mine->stream, ids[mine->number], value));
		OK(cuStreamGetAttribute(mine->stream, ids[mine->number], &back));
		EXPECT(!memcmp(&back, value, used[mine->number]));
	}
	return NULL;
}

static void racing_attributes(void)
{
	struct racer two[2];
	pthread_t thread[2];

	two[0].number = 0;
	two[0].context = new_context();
	OK(cuStreamCreate(&two[0].stream, CU_STREAM_NON_BLOCKING));
	two[1] = two[0];
	two[1].number = 1;
	for (int i = 0; i < 2; i++)
		EXPECT(!pthread_create(&thread[i], NULL, set_one, &two[i]));
	for (int i = 0; i < 2; i++)
		EXPECT(!pthread_join(thread[i], NULL));
}

static void wrong_attributes(void)
{
	CUstreamAttrValue v = { .accessPolicyWindow = { .hitRatio = 2 } }, back;
	CUstream s;

	new_context();
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.accessPolicyWindow.hitRatio = NAN;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.accessPolicyWindow.hitRatio = 1;
	v.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	OK(cuStreamGetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &back));
	EXPECT(back.accessPolicyWindow.hitRatio == 0 && !back.accessPolicyWindow.missProp);
	v = (CUstreamAttrValue){ .syncPolicy = 0 };
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v = (CUstreamAttrValue){ .memSyncDomain = 2 };
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(s, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &back));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(s, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
}

static void pointers(void)
{
	unsigned int on = 1;
	CUdeviceptr memory;

	new_context();
	OK(cuMemAlloc(&memory, 4096));
	OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory + 100));
	OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
	EXPECT(on == 1);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
	OK(cuMemFree(memory));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
}

/* ---- the log */

static struct heard {
	int count;
	char last[256];
} heard;

static void CUDA_CB listen(void *data, CUlogLevel level, char *message, size_t length)
{
	struct heard *to = data;

	EXPECT(level == CU_LOG_LEVEL_ERROR && strlen(message) == length && !strchr(message, '\n'));
	to->count++;
	snprintf(to->last, sizeof(to->last), "%s", message);
}

/* One message: directly, of a kernel with an unknown instruction; in a guest, of a function that is not forwarded. */
static void provoke(void)
{
	static const char image[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				    ".visible .entry fine() { ret; }\n"
				    ".visible .entry odd() { .reg .b32 %r<2>; frobnicate.u32 %r1; ret; }\n";
	CUfunction function;
	CUmodule module;
	CUresult r;

	setenv("VGPUMGR_QUIET", "1", 1); /* the log has it all the same */
	if (getenv("VGPUMGR_AGENT")) { /* in a guest, what the library itself refuses */
		r = cuGraphicsUnregisterResource(NULL);
		EXPECT_ERROR(CUDA_ERROR_NOT_SUPPORTED, r);
		return;
	}
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetFunction(&function, module, "odd"));
	r = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	EXPECT(r != CUDA_SUCCESS);
	OK(cuModuleUnload(module));
}

static void messages(void)
{
	CUlogIterator begin, at;
	CUlogsCallbackHandle handle;
	char text[30000], small[40];
	size_t size;

	/* without a device, and before cuInit */
	OK(cuLogsCurrent(&begin, 0));
	at = begin;
	size = sizeof(text);
	OK(cuLogsDumpToMemory(&at, text, &size, 0));
	EXPECT(!size && !*text);
	OK(cuLogsRegisterCallback(listen, &heard, &handle));
	new_context();
	provoke();
	EXPECT(heard.count == 1 && strlen(heard.last) > 10);
	size = sizeof(text);
	OK(cuLogsDumpToMemory(&at, text, &size, 0));
	EXPECT(size == strlen(heard.last) + 1 && text[size - 1] == '\n' && !strncmp(text, heard.last, size - 1));
	size = sizeof(text); /* the iterator has moved on */
	OK(cuLogsDumpToMemory(&at, text, &size, 0));
	EXPECT(!size);
	OK(cuLogsUnregisterCallback(handle));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback(handle));
	for (int i = 0; i < 150; i++)
		provoke();
	EXPECT(heard.count == 1);
	/* no more than the last 100 are kept, and that some are gone is said */
	at = begin;
	size = sizeof(text);
	OK(cuLogsDumpToMemory(&at, text, &size, 0));
	EXPECT(size <= 25600 && *text == '[');
	size = sizeof(small);
	at = begin;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&at, small, &size, 0));
	EXPECT(!size && at == begin);
	size = 2 * strlen(heard.last) + 30; /* the newest, with the word that there are more */
	OK(cuLogsDumpToMemory(NULL, text, &size, 0));
	EXPECT(*text == '[' && strstr(text, heard.last) && text[size - 1] == '\n' && !text[size]);
}

static void log_files(void)
{
	char name[] = "/tmp/cuda-log.XXXXXX", text[256];
	CUlogIterator at;
	FILE *file;
	int made = mkstemp(name);

	EXPECT(made >= 0);
	close(made);
	new_context();
	OK(cuLogsCurrent(&at, 0));
	provoke();
	OK(cuLogsDumpToFile(&at, name, 0));
	file = fopen(name, "r");
	EXPECT(file && fgets(text, sizeof(text), file) && strlen(text) > 10 && !fgets(text, sizeof(text), file));
	fclose(file);
	unlink(name);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile(&at, "/nowhere/log", 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToFile(&at, NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(&at, 1));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(NULL, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsRegisterCallback(NULL, NULL, NULL));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLogsUnregisterCallback(NULL));
}

static void links(void)
{
	CUatomicOperation operations[] = { CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS };
	unsigned int found[2] = { 7, 7 };

	new_context();
	OK(cuDeviceGetHostAtomicCapabilities(found, operations, 2, 0));
	EXPECT(!found[0] && !found[1]);
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetHostAtomicCapabilities(found, operations, 2, 99));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(found, operations, 0, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(NULL, operations, 1, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAtomicCapabilities(found, operations, 2, 0, 0));
	operations[1] = CU_ATOMIC_OPERATION_MAX;
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuDeviceGetHostAtomicCapabilities(found, operations, 2, 0));
}

/* Newer than the version that a guest's driver says it is: by its name. */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int mode);

static void count(void *runs)
{
	++*(int *)runs;
}

static void host_tasks(void)
{
	static int runs;
	CUstream stream;

	new_context();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc_v2(stream, count, &runs, CU_HOST_TASK_SPINWAIT));
	OK(cuLaunchHostFunc_v2(stream, count, &runs, CU_HOST_TASK_BLOCKING));
	OK(cuStreamSynchronize(stream));
	EXPECT(runs == 2);
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc_v2(stream, count, &runs, 2));
}

/* None of them is planar, sparse or without memory. */
static void plain_arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR made = { 16, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 };
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	CUDA_ARRAY_SPARSE_PROPERTIES sparse;
	CUmipmappedArray mipmap;
	CUarray array, plane;

	new_context();
	OK(cuArray3DCreate(&array, &made));
	OK(cuMipmappedArrayCreate(&mipmap, &made, 2));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuArrayGetPlane(&plane, array, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuArrayGetSparseProperties(&sparse, array));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&needs, array, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
	EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetMemoryRequirements(&needs, mipmap, 0));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayGetPlane(&plane, (CUarray)&made, 0));
	OK(cuArrayDestroy(array));
	EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, cuArrayGetSparseProperties(&sparse, array));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "stream_attributes", attributes }, { "copied_attributes", copies }, { "wrong_attributes", wrong_attributes },
		{ "racing_attributes", racing_attributes }, { "links", links }, { "host_tasks", host_tasks }, { "plain_arrays", plain_arrays },
		{ "pointer_attributes", pointers }, { "log_messages", messages }, { "log_files", log_files }, { NULL, NULL },
	};

	return run_case(cases, argc, argv);
}
