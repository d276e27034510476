/* SPDX-License-Identifier: Apache-2.0 */
/* One process with several devices, as NCCL's user guide shows it; with THREADS a thread for each rank instead. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
int ncclCommInitAll(ncclComm_t *comms, int count, const int *devices);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, ncclComm_t comm, cudaStream_t stream);
int ncclSend(const void *from, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);
int ncclRecv(void *to, size_t count, int type, int peer, ncclComm_t comm, cudaStream_t stream);
int ncclCommDestroy(ncclComm_t comm);
const char *ncclGetLastError(ncclComm_t comm);

#define CHECK(call)                                                                        \
	do {                                                                               \
		int result = (int)(call);                                                  \
		if (result) {                                                              \
			printf("%s: %d %s\n", #call, result, ncclGetLastError(NULL));     \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

enum { COUNT = 300000, DEVICES = 2, TURNS = 5 };

struct rank {
	int number;
	ncclUniqueId id;
	ncclComm_t comm;
	cudaStream_t stream;
	float *from, *to;
};

static void prepare(struct rank *r)
{
	float *values = malloc(COUNT * sizeof(*values));

	for (int i = 0; i < COUNT; i++)
		values[i] = (float)(i + r->number);
	CHECK(cudaSetDevice(r->number));
	CHECK(cudaMalloc((void **)&r->from, COUNT * sizeof(float)));
	CHECK(cudaMalloc((void **)&r->to, COUNT * sizeof(float)));
	CHECK(cudaMemcpy(r->from, values, COUNT * sizeof(float), cudaMemcpyHostToDevice));
	CHECK(cudaStreamCreate(&r->stream));
	free(values);
}

static void compare(struct rank *r)
{
	float *values = malloc(COUNT * sizeof(*values));

	CHECK(cudaSetDevice(r->number));
	CHECK(cudaStreamSynchronize(r->stream));
	CHECK(cudaMemcpy(values, r->to, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
	for (int i = 0; i < COUNT; i++)
		if (values[i] != (float)(2 * i + 1)) {
			printf("%d of rank %d is %f\n", i, r->number, values[i]);
			exit(1);
		}
	free(values);
	CHECK(ncclCommDestroy(r->comm));
}

static void *serve(void *argument)
{
	struct rank *r = argument;

	prepare(r);
	CHECK(ncclCommInitRank(&r->comm, DEVICES, r->id, r->number));
	for (int turn = 0; turn < TURNS; turn++) {
		CHECK(ncclAllReduce(r->from, r->to, COUNT, 7, 0, r->comm, r->stream));
		CHECK(ncclGroupStart());
		CHECK(ncclSend(r->to, COUNT, 7, 1 - r->number, r->comm, r->stream));
		CHECK(ncclRecv(r->to, COUNT, 7, 1 - r->number, r->comm, r->stream));
		CHECK(ncclGroupEnd());
	}
	compare(r);
	return NULL;
}

int main(int count, char **words)
{
	static struct rank ranks[DEVICES] = { { .number = 0 }, { .number = 1 } };
	int devices[DEVICES] = { 0, 1 };
	ncclComm_t comms[DEVICES];
	pthread_t threads[DEVICES];
	ncclUniqueId id;

	(void)words;
	if (count > 1) {
		CHECK(ncclGetUniqueId(&id));
		for (int i = 0; i < DEVICES; i++) {
			ranks[i].id = id;
			CHECK(pthread_create(&threads[i], NULL, serve, &ranks[i]));
		}
		for (int i = 0; i < DEVICES; i++)
			CHECK(pthread_join(threads[i], NULL));
		puts("ok");
		return 0;
	}
	for (int i = 0; i < DEVICES; i++)
		prepare(&ranks[i]);
	CHECK(ncclCommInitAll(comms, DEVICES, devices));
	CHECK(ncclGroupStart());
	for (int i = 0; i < DEVICES; i++)
		CHECK(ncclAllReduce(ranks[i].from, ranks[i].to, COUNT, 7, 0, comms[i], ranks[i].stream));
	CHECK(ncclGroupEnd());
	for (int i = 0; i < DEVICES; i++) {
		ranks[i].comm = comms[i];
		compare(&ranks[i]);
	}
	puts("ok");
	return 0;
}
