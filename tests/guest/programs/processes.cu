/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes [N [ROUNDS]]: two processes compute on the same memory in turn. Their streams wait for each other's events, so that
 * neither process waits for the device; pipes carry handles, and say that an event has been recorded.
 */
#define PROGRAM "processes"
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>


static int in, out; /* of the pipes to the other process */

static void tell(const void *what, size_t bytes)
{
	if (write(out, what, bytes) != (ssize_t)bytes)
		FAIL("the other process has gone");
}

static void hear(void *what, size_t bytes)
{
	if (read(in, what, bytes) != (ssize_t)bytes)
		FAIL("the other process says nothing");
}

__global__ void turn(unsigned *at, int n, unsigned factor, unsigned more)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		at[i] = at[i] * factor + more;
}

/* Our event for the other process, and its for us. */
static void exchange(cudaEvent_t *ours, cudaEvent_t *theirs)
{
	cudaIpcEventHandle_t handle;

	CHECK(cudaEventCreateWithFlags(ours, cudaEventInterprocess | cudaEventDisableTiming));
	CHECK(cudaIpcGetEventHandle(&handle, *ours));
	tell(&handle, sizeof(handle));
	hear(&handle, sizeof(handle));
	CHECK(cudaIpcOpenEventHandle(theirs, handle));
}

static void run(unsigned *at, int n, int rounds, bool first, unsigned factor, unsigned more)
{
	cudaEvent_t ours, theirs;
	cudaStream_t stream;
	char word = 0;

	exchange(&ours, &theirs);
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int round = 0; round < rounds; round++) {
		if (!first || round) {
			hear(&word, 1);
			CHECK(cudaStreamWaitEvent(stream, theirs, 0));
		}
		turn<<<blocks_for(n, 128), 128, 0, stream>>>(at, n, factor, more + (unsigned)round);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(ours, stream));
		tell(&word, 1);
	}
	if (first)
		hear(&word, 1);
	CHECK(cudaEventSynchronize(theirs));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaEventDestroy(theirs));
	CHECK(cudaEventDestroy(ours));
}

static int open_it(int n, int rounds)
{
	cudaIpcMemHandle_t handle;
	unsigned *at, *again, value;
	char word;

	hear(&handle, sizeof(handle));
	CHECK(cudaIpcOpenMemHandle((void **)&at, handle, cudaIpcMemLazyEnablePeerAccess));
	CHECK(cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess));
	if (again != at)
		FAIL("one handle has two addresses");
	REFUSED(cudaFree(at), cudaErrorInvalidValue);
	run(at, n, rounds, false, 3, 7);
	hear(&value, sizeof(value)); /* it has been freed over there */
	unsigned here;
	CHECK(cudaMemcpy(&here, at + n - 1, sizeof(here), cudaMemcpyDeviceToHost));
	if (here != value)
		FAIL("%u instead of %u after it was freed", here, value);
	CHECK(cudaIpcCloseMemHandle(again));
	CHECK(cudaIpcCloseMemHandle(at));
	REFUSED(cudaIpcCloseMemHandle(at), cudaErrorInvalidValue);
	word = 1;
	tell(&word, 1);
	return 0;
}

static unsigned expect(int i, int rounds)
{
	unsigned value = (unsigned)i;

	for (int round = 0; round < rounds; round++)
		value = (value * 5 + 1 + (unsigned)round) * 3 + 7 + (unsigned)round;
	return value;
}

int main(int argc, char **argv)
{
	int n = (int)argument(argc, argv, 1, 100000), rounds = (int)argument(argc, argv, 2, 20), to[2], from[2], status = 0;
	unsigned *host = (unsigned *)std::malloc(n * sizeof(*host)), *at, *own;
	cudaIpcMemHandle_t handle;
	char word;

	if (pipe(to) || pipe(from))
		FAIL("no pipes");
	pid_t child = fork(); /* before CUDA starts */
	in = child ? from[0] : to[0];
	out = child ? to[1] : from[1];
	close(child ? to[0] : from[0]);
	close(child ? from[1] : to[1]);
	if (!child)
		return open_it(n, rounds);
	for (int i = 0; i < n; i++)
		host[i] = (unsigned)i;
	CHECK(cudaMalloc(&at, n * sizeof(*at)));
	CHECK(cudaMemcpy(at, host, n * sizeof(*at), cudaMemcpyHostToDevice));
	CHECK(cudaIpcGetMemHandle(&handle, at + n / 2)); /* of all of it */
	REFUSED(cudaIpcOpenMemHandle((void **)&own, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
	tell(&handle, sizeof(handle));
	run(at, n, rounds, true, 5, 1);
	CHECK(cudaMemcpy(host, at, n * sizeof(*at), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		if (host[i] != expect(i, rounds))
			FAIL("element %d is %u", i, host[i]);
	CHECK(cudaFree(at));
	tell(&host[n - 1], sizeof(host[0]));
	hear(&word, 1);
	if (waitpid(child, &status, 0) != child || status)
		FAIL("the other process ended with %d", status);
	PASS("%d rounds of two processes on %d numbers", rounds, n);
}
