/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks by programs that use CUDA: what a tenant can do without touching the channel. */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attacks.h"

#define MIB (1ull << 20)

static const char kernels[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"
	".extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);\n"
	".global .align 1 .b8 text[9] = {108, 105, 110, 101, 32, 37, 117, 10, 0};\n"
	".visible .entry endless() { again: bra again; }\n"
	".visible .entry trap() { trap; ret; }\n"
	".visible .entry fault() { .reg .u64 %p; mov.u64 %p, 64; st.global.u32 [%p], 1; ret; }\n"
	".visible .entry print(.param .u32 count) {\n"
	" .local .align 8 .b8 given[8]; .reg .b64 %a, %t; .reg .b32 %i, %n, %r; .reg .pred %p;\n"
	" ld.param.u32 %n, [count]; mov.u32 %i, 0;\n"
	"again: setp.ge.u32 %p, %i, %n; @%p bra done;\n"
	" mov.u64 %a, given; st.local.u32 [%a], %i; cvta.local.u64 %a, %a; mov.u64 %t, text; cvta.global.u64 %t, %t;\n"
	" { .param .b64 f; .param .b64 v; .param .b32 r; st.param.b64 [f], %t; st.param.b64 [v], %a;\n"
	"   call.uni (r), vprintf, (f, v); }\n"
	" add.u32 %i, %i, 1; bra again;\ndone: ret; }\n"
	".visible .entry assertion() { .reg .b64 %t; mov.u64 %t, text; cvta.global.u64 %t, %t;\n"
	" { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 c;\n"
	"   st.param.b64 [m], %t; st.param.b64 [f], %t; st.param.b32 [l], 7; st.param.b64 [n], %t; st.param.b64 [c], 1;\n"
	"   call.uni __assertfail, (m, f, l, n, c); } ret; }\n";

static CUcontext begin(void)
{
	CUcontext context = NULL;

	if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) {
		printf("no context\n");
		exit(1);
	}
	return context;
}

static int launch(const char *name, unsigned argument)
{
	void *arguments[] = { &argument };
	CUfunction function;
	CUmodule module;

	if (cuModuleLoadData(&module, kernels) || cuModuleGetFunction(&function, module, name))
		return -1;
	return (int)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* ---- memory ---- */

int allocate_all(unsigned long rounds)
{
	static CUdeviceptr blocks[65536];
	unsigned long most = 0;
	size_t before, after, all;
	CUresult end = 0;

	begin();
	cuMemGetInfo_v2(&before, &all);
	for (unsigned long i = 0; i < rounds; i++) {
		unsigned long count = 0;

		for (size_t size = 256 * MIB; size >= MIB && count < 65536; size /= 4)
			while (count < 65536 && !(end = cuMemAlloc_v2(&blocks[count], size)))
				count++;
		most = count > most ? count : most;
		while (count)
			cuMemFree_v2(blocks[--count]);
	}
	cuMemGetInfo_v2(&after, &all);
	printf("blocks %lu end %d freed %d\n", most, end, before == after);
	return 0;
}

int fragment(unsigned long count)
{
	enum { KEPT = 1024 };
	static CUdeviceptr blocks[KEPT];
	unsigned long made = 0, refused = 0;
	size_t before, after, all;

	begin();
	srandom(1);
	cuMemGetInfo_v2(&before, &all);
	for (unsigned long i = 0; i < count; i++) {
		unsigned at = (unsigned)random() % KEPT;
		CUresult r;

		if (blocks[at])
			cuMemFree_v2(blocks[at]);
		blocks[at] = 0;
		r = cuMemAlloc_v2(&blocks[at], 1 + (size_t)random() % (1 << random() % 22));
		made += !r;
		refused += r == CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (unsigned i = 0; i < KEPT; i++)
		if (blocks[i])
			cuMemFree_v2(blocks[i]);
	cuMemGetInfo_v2(&after, &all);
	printf("made %lu refused %lu freed %d\n", made, refused, before == after);
	return made + refused != count;
}

/* Host memory that is pinned is the guest's own. */
int pinned(unsigned long count)
{
	unsigned long made = 0;
	void *block;

	begin();
	for (unsigned long i = 0; i < count; i++) {
		if (cuMemHostAlloc(&block, 16 * MIB, 0))
			break;
		made++;
		if (i % 4)
			cuMemFreeHost(block);
	}
	printf("made %lu\n", made);
	fflush(stdout);
	getchar();
	return !made;
}

/* Sizes whose products and sums go round. */
int pitch_overflow(unsigned long count)
{
	static const size_t odd[] = { 0, 1, 16, 1ull << 31, 1ull << 32, 1ull << 62, 1ull << 63, SIZE_MAX, SIZE_MAX - 15 };
	enum { ODD = sizeof(odd) / sizeof(odd[0]), SIZE = 4096 };
	unsigned long tried = 0, accepted = 0;
	static char host[SIZE];
	CUdeviceptr device;

	(void)count;
	begin();
	if (cuMemAlloc_v2(&device, SIZE))
		return 1;
	for (unsigned i = 0; i < ODD * ODD * ODD; i++) {
		CUDA_MEMCPY2D copy = {
			.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = SIZE,
			.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = device, .dstPitch = odd[i % ODD],
			.WidthInBytes = odd[i / ODD % ODD], .Height = odd[i / ODD / ODD],
		};
		size_t width = copy.WidthInBytes, height = copy.Height, pitch = copy.dstPitch;
		bool empty = !width || !height, fits = height <= 1 ? width <= SIZE : pitch <= SIZE && height * pitch <= SIZE;

		if (empty || (fits && width <= SIZE && width * height <= SIZE))
			continue; /* that is right, or may be */
		tried += 4;
		/* memory of the program's own is not to be read beyond its end: with a source on the device only */
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = device;
		accepted += !cuMemcpy2D_v2(&copy) && !cuCtxSynchronize();
		accepted += !cuMemsetD2D8_v2(device, pitch, 1, width, height) && !cuCtxSynchronize();
		accepted += !cuMemsetD2D32_v2(device, pitch, 1, width, height) && !cuCtxSynchronize();
		accepted += !cuMemsetD32_v2(device + SIZE - 4, 1, width) && !cuCtxSynchronize() && width > 1;
	}
	printf("tried %lu accepted %lu\n", tried, accepted);
	return 0;
}

/* Addresses that are not the program's: never given, of its host memory, beyond an allocation's end. */
int forged_addresses(unsigned long count)
{
	unsigned long accepted = 0;
	CUdeviceptr mine;
	char byte;

	begin();
	srandom(7);
	if (cuMemAlloc_v2(&mine, 4096))
		return 1;
	for (unsigned long i = 0; i < count; i++) {
		const CUdeviceptr forms[] = { (CUdeviceptr)random() << 12, mine + 4096 + (CUdeviceptr)random() % (64 * MIB),
					      mine - 1 - (CUdeviceptr)random() % MIB, (CUdeviceptr)(uintptr_t)&byte };

		accepted += cuMemcpyDtoH_v2(&byte, forms[i % 4], 1) == CUDA_SUCCESS;
		if (i % 64 == 0) /* a fill is answered with the next wait */
			accepted += !cuMemsetD8_v2(forms[i / 64 % 4], 1, 1) && !cuCtxSynchronize();
	}
	printf("forged %lu accepted %lu\n", count, accepted);
	return 0;
}

/* ---- objects ---- */

int many_objects(unsigned long count)
{
	unsigned long streams = 0, events = 0;
	CUresult end = 0;
	CUstream stream;
	CUevent event;

	begin();
	while (streams < count && !(end = cuStreamCreate(&stream, 1)))
		streams++;
	for (CUresult r = 0; events < count && !r;) {
		r = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
		events += !r;
	}
	/* what was refused late is answered here */
	printf("streams %lu end %d events %lu sync %d\n", streams, end, events, cuCtxSynchronize());
	fflush(stdout);
	getchar();
	return 0;
}

/* A chain of events across streams, as deep as told, before any of it may end. */
int deep_graph(unsigned long depth)
{
	enum { STREAMS = 64 };
	CUstream streams[STREAMS];
	unsigned long linked = 0;
	CUevent event;
	CUresult r = 0;

	begin();
	for (unsigned i = 0; i < STREAMS; i++)
		if (cuStreamCreate(&streams[i], 1))
			return 1;
	for (unsigned long i = 0; i < depth && !r; i++) {
		r = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
		if (!r)
			r = cuEventRecord(event, streams[i % STREAMS]);
		if (!r)
			r = cuStreamWaitEvent(streams[(i + 1) % STREAMS], event, 0);
		linked += !r;
	}
	printf("linked %lu end %d sync %d\n", linked, r, cuCtxSynchronize());
	return 0;
}

/* ---- images ---- */

/* A fat binary whose LZ4 block is `length` blanks and then an empty program; it says that it has `said` bytes. */
static CUresult load_bomb(uint64_t length, uint64_t said)
{
	static const char tail[] = ".version 8.0\n.target sm_80\n.address_size 64\n\0pad";
	size_t runs = length / 255, size = 16 + 64 + 4 + runs + 8 + sizeof(tail) + 8, at = 80;
	uint8_t *image = calloc(1, size);
	struct {
		uint16_t kind, version;
		uint32_t header;
		uint64_t payload;
		uint32_t compressed, options, code_version, architecture, name_offset, name_length;
		uint64_t flags, reserved, uncompressed;
	} entry = { .kind = 1, .version = 0x101, .header = 64, .architecture = 80, .flags = 0x2000 | 0x11 };
	CUmodule module;
	CUresult r;

	image[at++] = 0x1f; /* one literal, a match of 15 and more */
	image[at++] = ' ';
	image[at++] = 1;
	image[at++] = 0;
	memset(image + at, 255, runs);
	at += runs;
	image[at++] = 0;
	image[at++] = 0xf0; /* the rest is literals */
	image[at++] = (uint8_t)(sizeof(tail) - 15);
	memcpy(image + at, tail, sizeof(tail));
	at += sizeof(tail);
	entry.compressed = (uint32_t)(at - 80);
	entry.payload = (at - 80 + 7) & ~7ull;
	entry.uncompressed = said ? said : 1 + 19 + 255 * runs + sizeof(tail);
	memcpy(image, &(uint32_t[]){ 0xba55ed50, 16u << 16 | 1 }, 8);
	memcpy(image + 8, &(uint64_t){ 64 + entry.payload }, 8);
	memcpy(image + 16, &entry, sizeof(entry));
	r = cuModuleLoadData(&module, image);
	free(image);
	return r;
}

int module_bomb(unsigned long count)
{
	CUresult whole, lying, huge;
	CUcontext context = begin();

	(void)count;
	whole = load_bomb(100 * MIB, 0);
	lying = load_bomb(MIB, UINT64_MAX);
	huge = load_bomb(4096 * MIB, 0);
	printf("whole %d lying %d huge %d\n", whole, lying, huge);
	(void)context;
	return 0;
}

static CUresult load_text(const char *head, const char *piece, unsigned long count, const char *tail)
{
	size_t length = strlen(piece);
	char *text = malloc(strlen(head) + length * count + strlen(tail) + 1), *at = stpcpy(text, head);
	CUmodule module;
	CUresult r;

	for (unsigned long i = 0; i < count; i++)
		at = stpcpy(at, piece);
	strcpy(at, tail);
	r = cuModuleLoadData(&module, text);
	free(text);
	return r;
}

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() { .reg .u32 %r<9>;\n"

/* Much to compile. */
int long_compile(unsigned long count)
{
	begin();
	printf("compiling\n");
	printf("result %d\n", load_text(HEAD, "add.u32 %r1, %r2, %r3; mul.lo.u32 %r2, %r1, %r4;\n", count, "ret; }\n"));
	return 0;
}

/* Recursion of a parser. */
int deep_nesting(unsigned long depth)
{
	CUresult blocks, parentheses;

	begin();
	blocks = load_text(HEAD, "{", depth, "");
	parentheses = load_text(".version 8.0\n.target sm_80\n.address_size 64\n.global .u32 x = ", "(", depth, "1");
	printf("blocks %d parentheses %d\n", blocks, parentheses);
	return 0;
}

/* ---- execution ---- */

int endless(unsigned long count)
{
	(void)count;
	begin();
	printf("launch %d\n", launch("endless", 0));
	printf("sync %d\n", cuCtxSynchronize());
	return 0;
}

int print_flood(unsigned long count)
{
	int launched;

	begin();
	launched = launch("print", (unsigned)count);
	fprintf(stderr, "launch %d sync %d\n", launched, cuCtxSynchronize());
	return 0;
}

static int break_kernel(const char *name)
{
	int launched, first, then;

	begin();
	launched = launch(name, 0);
	first = cuCtxSynchronize();
	then = cuCtxSynchronize();
	printf("launch %d sync %d then %d\n", launched, first, then);
	return 0;
}

int trap(unsigned long count)
{
	(void)count;
	return break_kernel("trap");
}

int assertion(unsigned long count)
{
	(void)count;
	return break_kernel("assertion");
}

static unsigned long called;

static void CUDA_CB hold(void *data)
{
	(void)data;
	sleep(1);
}

static void CUDA_CB count_call(void *data)
{
	(void)data;
	called++;
}

/* Host functions without end, behind one that takes its time. */
int callbacks(unsigned long count)
{
	unsigned long queued = 0;
	CUresult end = 0;

	begin();
	cuLaunchHostFunc(NULL, hold, NULL);
	while (queued < count && !(end = cuLaunchHostFunc(NULL, count_call, NULL)))
		queued++;
	printf("queued %lu end %d sync %d ", queued, end, cuCtxSynchronize());
	printf("then %d ", cuCtxSynchronize());
	printf("called %lu\n", called);
	return 0;
}

/* One process after the other breaks its context, with work behind the fault. */
int faults(unsigned long count)
{
	unsigned long broken = 0;

	for (unsigned long i = 0; i < count; i++) {
		int status = 0;
		pid_t child = fork();

		if (!child) {
			CUdeviceptr memory = 0;

			begin();
			cuMemAlloc_v2(&memory, MIB);
			launch("fault", 0);
			for (unsigned k = 0; k < 1000; k++)
				cuMemsetD8_v2(memory, 1, MIB);
			_exit(cuCtxSynchronize() ? 0 : 1);
		}
		waitpid(child, &status, 0);
		broken += WIFEXITED(status) && !WEXITSTATUS(status);
	}
	printf("tried %lu broken %lu\n", count, broken);
	return 0;
}
