/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-hold WORKER ARGUMENTS...: holds the slice, then becomes the worker.
 *
 * NVML destroys a MIG instance unless a process uses it (nvmlGpuInstanceDestroy, nvmlComputeInstanceDestroy), and a worker
 * uses its instance only while its guest computes. So a child has one CUDA context there from before the worker runs
 * until after it has ended. The child answers nobody and has none of the channel's descriptors.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../worker/filter.h"

enum { BLOCKING_SYNC = 4 }; /* CU_CTX_SCHED_BLOCKING_SYNC: it never computes */

typedef int (*init_function)(unsigned flags);
typedef int (*device_function)(int *device, int ordinal);
typedef int (*create_function)(void **context, unsigned flags, int device);

/* As the worker finds it: --cuda PATH; else $VGPUMGR_CUDA; else the one that the loader finds. */
static const char *driver_path(int argc, char **argv)
{
	const char *path = getenv("VGPUMGR_CUDA");

	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--cuda"))
			path = argv[i + 1];
	return path && *path ? path : "libcuda.so.1";
}

static int open_context(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *context;
	init_function init;
	device_function get_device;
	create_function create;
	int device, error;

	if (!library) {
		fprintf(stderr, "vgpumgr-hold: cannot load the CUDA driver: %s\n", dlerror());
		return -1;
	}
	*(void **)&init = dlsym(library, "cuInit");
	*(void **)&get_device = dlsym(library, "cuDeviceGet");
	*(void **)&create = dlsym(library, "cuCtxCreate_v2");
	if (!init || !get_device || !create) {
		fprintf(stderr, "vgpumgr-hold: %s is no CUDA driver\n", path);
		return -1;
	}
	error = init(0);
	if (!error)
		error = get_device(&device, 0);
	if (!error)
		error = create(&context, BLOCKING_SYNC, device);
	if (error)
		fprintf(stderr, "vgpumgr-hold: cannot hold the slice: CUDA error %d\n", error);
	return error;
}

/* `said` is closed when the slice is held, or cannot be: the worker then says why. */
static _Noreturn void hold(int argc, char **argv, int said, pid_t parent)
{
	enum { KEPT = 3 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (said != KEPT)
		dup2(said, KEPT);
	close_range(KEPT + 1, ~0u, 0);
	if (open_context(driver_path(argc, argv)) || vg_lock_down(argc, argv))
		_exit(1);
	close(KEPT);
	for (;;)
		pause();
}

static void start_holder(int argc, char **argv)
{
	pid_t parent = getpid(), child;
	int pair[2];
	char byte;

	if (pipe2(pair, O_CLOEXEC)) {
		perror("vgpumgr-hold: pipe2");
		return;
	}
	child = fork();
	if (!child) {
		close(pair[0]);
		hold(argc, argv, pair[1], parent);
	}
	close(pair[1]);
	if (child < 0)
		perror("vgpumgr-hold: fork");
	else
		while (read(pair[0], &byte, 1) < 0 && errno == EINTR)
			;
	close(pair[0]);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: vgpumgr-hold WORKER ARGUMENTS...\n");
		return 2;
	}
	if (vg_hide(argc, argv))
		return 1;
	start_holder(argc - 1, argv + 1);
	execv(argv[1], argv + 1);
	fprintf(stderr, "vgpumgr-hold: cannot run %s: %s\n", argv[1], strerror(errno));
	return 127;
}
