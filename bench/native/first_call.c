/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon a new process has its first call: usage is vgpumgr-bench-first LIBRARY PROCESSES. Prints the median number of
 * nanoseconds from the start of a process of this program to the end of its first call in a context, through that
 * library: start, loading, cuInit, a context, cuMemGetInfo.
 */
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

enum { PROCESSES_MAX = 1000, PAUSE_US = 100000 };

extern char **environ;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *need(void *library, const char *name)
{
	void *symbol = library ? dlsym(library, name) : NULL;

	if (!symbol)
		exit(2);
	return symbol;
}

/* The new process: writes the time at which its first call has returned. */
static int call(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	CUresult (*init)(unsigned) = need(library, "cuInit");
	CUresult (*create)(CUcontext *, unsigned, CUdevice) = need(library, "cuCtxCreate_v2");
	CUresult (*get_info)(size_t *, size_t *) = need(library, "cuMemGetInfo_v2");
	size_t free_bytes, total_bytes;
	CUcontext context;
	double end;

	if (init(0) || create(&context, 0, 0) || get_info(&free_bytes, &total_bytes))
		return 1;
	end = now_ns();
	return write(1, &end, sizeof(end)) == sizeof(end) ? 0 : 1;
}

static double run(char *program, char *library)
{
	char *words[] = { program, library, NULL };
	posix_spawn_file_actions_t actions;
	int ends[2], status;
	double start, end;
	pid_t pid;

	if (pipe(ends))
		exit(2);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	start = now_ns();
	if (posix_spawn(&pid, program, &actions, NULL, words, environ))
		exit(1);
	close(ends[1]);
	if (read(ends[0], &end, sizeof(end)) != sizeof(end) || waitpid(pid, &status, 0) != pid || status)
		exit(1);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[0]);
	return end - start;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double took[PROCESSES_MAX];
	int count = argc > 2 ? atoi(argv[2]) : 0;

	if (argc == 2)
		return call(argv[1]);
	if (count < 1 || count > PROCESSES_MAX)
		return 2;
	for (int i = 0; i < count; i++) {
		took[i] = run("/proc/self/exe", argv[1]);
		usleep(PAUSE_US); /* the next spare has time to start */
	}
	qsort(took, (size_t)count, sizeof(*took), compare);
	printf("%.0f\n", took[count / 2]);
	return 0;
}
