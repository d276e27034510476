/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about the whole system. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml_sim.h"

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	VIEW_MACHINE(v);
	return put_text(version, length, v.m->driver_version);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	VIEW_MACHINE(v);
	return put_text(version, length, v.m->nvml_version);
}

/* These two need the driver but no nvmlInit. */
static nvmlReturn_t cuda_version(int *version)
{
	const struct sim_machine *m;
	struct sim *sim;
	int err;

	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	err = sim_open(NULL, &sim);
	if (err)
		return nvml_from_errno(err);
	m = sim_read(sim);
	if (m) {
		*version = m->cuda_driver_version;
		sim_end(sim);
	}
	sim_close(sim);
	return m ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	return cuda_version(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return cuda_version(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *branchInfo, unsigned int length)
{
	char branch[16];
	VIEW_MACHINE(v);

	if (!branchInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (branchInfo->version != nvmlSystemDriverBranchInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	snprintf(branch, sizeof(branch), "r%.*s", (int)strcspn(v.m->driver_version, "."), v.m->driver_version);
	return put_text(branchInfo->branch, length, branch);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[32], text[4096];
	ssize_t n = -1;
	int fd;
	VIEW_MACHINE(v);

	if (!name || !length)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n < 0)
		return NVML_ERROR_NOT_FOUND;
	text[n] = 0;
	snprintf(name, length, "%s", text); /* the program alone, cut to the caller's buffer */
	return NVML_SUCCESS;
}
